"""convert(fuse=True): norms that stay plain though something follows them, and that results stay."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from blocks import act_module, assert_same, fuse_twins, image, log_calls, net
from torch import nn

import isonorm.torch as iso
from isonorm.torch.convert import convert, plan_conversion


def norm_is_seen(self, x):
    y = self.bn(self.conv(x))
    return self.act(y) + y


def sum_of_itself(self, x):
    y = self.bn(self.conv(x))
    return self.act(y + y)


def adds_number(self, x):
    return self.bn(self.conv(x)) + 1


def adds_scaled(self, x):
    return torch.add(self.bn(self.conv(x)), x, alpha=2)


def into_residual(self, x):
    z = x * 1
    z += self.bn(self.conv(x))
    return self.act(z) + z


def input_changes(self, x):
    a = x * 2
    y = self.bn(a)
    b = self.conv(self.act(a))
    return y + b


def residual_changes(self, x):
    r = self.conv2(x)
    y = F.silu(self.bn(self.conv(x)) + r)
    return y + self.act(r)


def called_in_between(self, x):
    a = self.bn(self.conv(x))
    b = self.bn(self.conv2(x))
    return self.act(a + b * 2) + a * 0


def waits_for_itself(self, x):
    return self.bn(self.conv(x)) + self.conv2(self.bn(x))


PLAIN = [
    (norm_is_seen, nn.ReLU()),
    (sum_of_itself, None),
    (adds_number, None),
    (adds_scaled, None),
    (into_residual, nn.ReLU()),
    (residual_changes, nn.ReLU(inplace=True)),
    (called_in_between, None),
    (waits_for_itself, None),
]


@pytest.mark.parametrize("forward, act", PLAIN, ids=[p[0].__name__ for p in PLAIN])
def test_stays_plain(forward, act, monkeypatch):
    model = net(forward, act)
    assert not plan_conversion(model).fused
    theirs, ours = fuse_twins(model)
    log = log_calls(monkeypatch)
    ours(image())
    assert set(log) == {(None, False)}
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image())


def test_an_input_that_changes_before_the_addition(monkeypatch):
    # The norm's input is overwritten between the norm and the addition; only without gradients does PyTorch allow that.
    theirs, ours = fuse_twins(net(input_changes))
    log = log_calls(monkeypatch)
    with torch.no_grad():
        torch.testing.assert_close(ours(x := image()), theirs(x), rtol=1e-11, atol=1e-11)
    assert log == [(None, False)]


def near(model):
    report = plan_conversion(model)
    assert not report.fused
    return [(path, reason) for path, reason in report.left]


def test_near_misses_are_listed():
    unknown = ("bn", "not fused, since the activation ReLU6 is not one of isonorm's")
    assert near(net(act_module, nn.ReLU6())) == [unknown]
    subclass = type("MyReLU", (nn.ReLU,), {})
    assert near(net(act_module, subclass())) == [("bn", "not fused, since the activation is a subclass of ReLU")]
    for hook in ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"):
        model = net(act_module)
        getattr(model.act, hook)(lambda *args: None)
        assert near(model) == [("bn", "not fused, since the activation has hooks or a forward of its own")]
        model = net(act_module)
        getattr(model.bn, hook)(lambda *args: None)
        assert near(model) == [("bn", "not fused, since the norm has hooks or a forward of its own")]
    assert near(net(input_changes)) == [("bn", "not fused, since its input may be changed before the addition")]
    assert "shares its state" in near(net(waits_for_itself))[0][1]
    assert "changed in place later" in near(net(residual_changes))[0][1]


def test_a_norm_with_an_activation_of_its_own(monkeypatch):
    model = net(act_module)
    model.bn = iso.BatchNorm2d(4, activation="tanh")
    assert not plan_conversion(model).fused
    convert(model, verbose=False)
    log = log_calls(monkeypatch)
    model.float()(image().float())
    assert log == [("tanh", False)]


def test_synchronized_norms_do_not_change_places():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = nn.Conv2d(4, 4, 1), nn.SyncBatchNorm(4)
            self.down = nn.Sequential(nn.Conv2d(4, 4, 1), nn.SyncBatchNorm(4))

        def forward(self, x):
            y = self.bn(self.conv(x))
            return torch.relu(y + self.down(x))

    report = plan_conversion(Model())
    assert not report.fused and "may communicate" in str(report)
    model = Model()
    model.down = nn.Conv2d(4, 4, 1)
    assert plan_conversion(model).fused == {"SyncBatchNorm + add + relu": 1}


def test_the_first_of_shared_norms_stays_first():
    # bn's statistics are updated by two calls: their order is that of the original.
    def forward(self, x):
        a = self.bn(self.conv(x))
        b = torch.relu(self.bn(self.conv2(x)))
        return a + b

    theirs, ours = fuse_twins(net(forward))
    assert_same(theirs, ours, image())
