"""convert(fuse=True): which forwards are fused, and that results stay."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from blocks import (
    ADD_RELU,
    RELU,
    SMALL_FUSED,
    Basic,
    Net,
    Small,
    act_module,
    assert_same,
    fuse_twins,
    image,
    log_calls,
    net,
    run,
    settle,
)
from torch import nn

from isonorm.torch.convert import convert, plan_conversion, revert


# Forwards that are fused: the activation as module, function and method, and the addition in all its ways.
def add_operator(self, x):
    return self.act(self.bn(self.conv(x)) + x)


def add_swapped(self, x):
    return torch.relu(x + self.bn(self.conv(x)))


def add_in_place(self, x):
    y = self.bn(self.conv(x))
    y += x
    return F.relu(y, inplace=True)


def add_function(self, x):
    return torch.add(self.bn(self.conv(x)), x).relu_()


def add_method(self, x):
    return self.bn(self.conv(x)).add(x).relu()


def add_method_in_place(self, x):
    return self.bn(self.conv(x)).add_(x, alpha=1)


def add_alone(self, x):
    return self.bn(self.conv(x)) + x


def add_norms(self, x):
    return self.act(self.bn(self.conv(x)) + self.bn2(self.conv2(x)))


def add_norms_swapped(self, x):
    a = self.bn(self.conv(x))
    b = self.bn2(self.conv2(x))
    return self.act(b + a)


def sum_is_used_twice(self, x):
    y = self.bn(self.conv(x)) + x
    return self.act(y) * y


def twice(self, x):
    return self.bn(self.act(self.bn(self.conv(x))))


def with_keyword(self, x, *, scale=2.0):
    return F.relu(self.bn(self.conv(x))) * scale


def with_option(self, x, mask=None):
    y = torch.relu(self.bn(self.conv(x)))
    return y if mask is None else y * mask


ADD = (None, True)
FUSED = [
    (act_module, None, [RELU]),
    (add_operator, None, [ADD_RELU]),
    (add_swapped, None, [ADD_RELU]),
    (add_in_place, None, [ADD_RELU]),
    (add_function, None, [ADD_RELU]),
    (add_method, None, [ADD_RELU]),
    (add_method_in_place, None, [ADD]),
    (add_alone, None, [ADD]),
    (add_norms, None, [(None, False), ADD_RELU]),
    (add_norms_swapped, None, [(None, False), ADD_RELU]),
    (sum_is_used_twice, nn.ReLU(), [ADD]),
    (twice, None, [RELU, (None, False)]),
    (with_keyword, None, [RELU]),
    (with_option, None, [RELU]),
]
ACTIVATIONS = [
    (nn.ReLU(), "relu"),
    (nn.LeakyReLU(), "leaky_relu"),
    (nn.LeakyReLU(0.2, inplace=True), "leaky_relu:0.2"),
    (nn.SiLU(inplace=True), "silu"),
    (nn.GELU(), "gelu"),
    (nn.GELU("tanh"), "gelu_tanh"),
    (nn.Sigmoid(), "sigmoid"),
    (nn.Tanh(), "tanh"),
    (nn.Hardswish(), "hardswish"),
    (lambda x: F.leaky_relu(x, 0.3), "leaky_relu:0.3"),
    (lambda x: F.leaky_relu(x, negative_slope=1, inplace=True), "leaky_relu:1.0"),
    (lambda x: F.leaky_relu_(x), "leaky_relu"),
    (lambda x: F.silu(x), "silu"),
    (lambda x: F.gelu(x, approximate="tanh"), "gelu_tanh"),
    (lambda x: F.gelu(x), "gelu"),
    (lambda x: F.hardswish(x, inplace=True), "hardswish"),
    (lambda x: F.relu_(x), "relu"),
    (lambda x: torch.relu_(x), "relu"),
    (lambda x: torch.sigmoid(x), "sigmoid"),
    (lambda x: F.sigmoid(x), "sigmoid"),
    (lambda x: x.sigmoid_(), "sigmoid"),
    (lambda x: torch.tanh(x), "tanh"),
    (lambda x: x.tanh(), "tanh"),
]


@pytest.mark.parametrize("forward, act, calls", FUSED, ids=[f[0].__name__ for f in FUSED])
def test_fused(forward, act, calls, monkeypatch):
    theirs, ours = fuse_twins(net(forward, act))
    log = log_calls(monkeypatch)
    ours(image())
    assert log == calls
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image())


@pytest.mark.parametrize("act, name", ACTIVATIONS, ids=[f"{i}-{a[1]}" for i, a in enumerate(ACTIVATIONS)])
def test_activations(act, name, monkeypatch):
    if isinstance(act, nn.Module):
        model = net(act_module, act)
    else:
        model = net(lambda self, x: act(self.bn(self.conv(x))))
    theirs, ours = fuse_twins(model)
    log = log_calls(monkeypatch)
    ours(image())
    assert log == [(name, False)]
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image())


def test_methods_and_properties(monkeypatch):
    class Model(Net):
        @property
        def norm(self):
            return getattr(self, self.norm_name)

        def inner(self, x):
            return self.act(self.norm(self.conv(x)))

        def forward(self, x):
            return self.inner(x)

    model = Model()
    model.norm_name = "bn"
    theirs, ours = fuse_twins(model)
    log = log_calls(monkeypatch)
    ours(image())
    assert log == [RELU]
    # Another norm, another trace.
    theirs.norm_name = ours.norm_name = "bn2"
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image())
    assert log[1:] == [(None, False)] * 2


def test_super_is_traced(monkeypatch):
    class Model(net(act_module).__class__):
        def forward(self, x):
            return super().forward(x) + 1

    theirs, ours = fuse_twins(Model())
    log = log_calls(monkeypatch)
    ours(image())
    assert log == [RELU]
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image())


NORMS = [
    (nn.BatchNorm1d(4), (3, 4), "BatchNorm1d"),
    (nn.BatchNorm3d(4), (2, 4, 3, 2, 2), "BatchNorm3d"),
    (nn.SyncBatchNorm(4), (2, 4, 6), "SyncBatchNorm"),
    (nn.GroupNorm(2, 4), (2, 4, 6), "GroupNorm"),
    (nn.InstanceNorm2d(4, affine=True, track_running_stats=True), (2, 4, 3, 5), "InstanceNorm2d"),
    (nn.LayerNorm(4), (3, 4), "LayerNorm"),
    (nn.RMSNorm(4), (3, 4), "RMSNorm"),
]


@pytest.mark.parametrize("norm, shape, name", NORMS, ids=[n[2] for n in NORMS])
def test_every_norm(norm, shape, name):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.act = norm, nn.GELU()

        def forward(self, x):
            return self.act(x * 2 + self.norm(x))

    model = Block()
    assert plan_conversion(model).fused == {f"{name} + add + gelu": 1}
    theirs, ours = fuse_twins(model)
    assert_same(theirs, ours, image(*shape))


def test_small_resnet(monkeypatch):
    model = Small()
    report = plan_conversion(model)
    assert report.fused == SMALL_FUSED and report.plain == 1 and not report.left
    assert report.done == {"BatchNorm2d": 6}
    theirs, ours = fuse_twins(model)
    log = log_calls(monkeypatch)
    ours(image(2, 3, 14, 14))
    assert sorted(log, key=str) == sorted([("silu", False), RELU, RELU, ADD_RELU, ADD_RELU, (None, False)], key=str)
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image(2, 3, 14, 14))


def test_lists_of_modules(monkeypatch):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv2d(4, 4, 1) for _ in range(2))
            self.norms = nn.ModuleDict({"a": nn.BatchNorm2d(4), "b": nn.BatchNorm2d(4)})

        def forward(self, x):
            for conv, name in zip(self.convs, self.norms):
                x = torch.relu(self.norms[name](conv(x)))
            return x

    theirs, ours = fuse_twins(Model())
    log = log_calls(monkeypatch)
    ours(image())
    assert log == [RELU, RELU]
    # One more of each: what was traced holds no longer.
    extra = nn.Conv2d(4, 4, 1).double(), settle(nn.BatchNorm2d(4).double())
    for model in (theirs, ours):
        conv, norm = copy.deepcopy(extra)
        model.convs.append(conv)
        model.norms["c"] = norm
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image())


def test_inputs_by_type(monkeypatch):
    class Model(Net):
        def forward(self, x):
            if isinstance(x, torch.Tensor):
                x = [x, 2]
            return self.act(self.bn(self.conv(x[0] * x[1])))

    theirs, ours = fuse_twins(Model())
    log = log_calls(monkeypatch)
    x = image()
    for given in (x, [x, 2], (x, 2), nn.Parameter(x)):
        expected = theirs.train()(given)
        torch.testing.assert_close(ours.train()(given), expected, rtol=1e-11, atol=1e-11)
    # A tuple and a parameter are neither of the types that were traced.
    assert log == [RELU, RELU, (None, False), (None, False)]


def test_numbers_are_not_changed_in_place():
    def forward(self, x):
        height = x.shape[2]
        more = height
        more += 1
        less = height
        less *= 0
        y = self.act(self.bn(self.conv(x)))
        z = y.view(torch.Size([-1])).clamp(max=float("inf"))
        z = z.nan_to_num(0.0, 1.0, -1.0).to(torch.float64, memory_format=torch.preserve_format)
        return (y * height + more + less)[..., 1:, None] + z.sum()

    theirs, ours = fuse_twins(net(forward, nn.ReLU()))
    assert type(ours).__name__ == "Fused<Given>"
    assert_same(theirs, ours, image())


def test_options_are_honoured(monkeypatch):
    theirs, ours = fuse_twins(net(with_option))
    log = log_calls(monkeypatch)
    x, mask = image(), image()
    torch.testing.assert_close(ours(x, mask), theirs(x, mask), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(ours(x=x, mask=mask), theirs(x=x, mask=mask), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(ours(x=x), theirs(x=x), rtol=1e-11, atol=1e-11)
    assert log == [(None, False), (None, False), RELU]
    theirs, ours = fuse_twins(net(with_keyword))
    torch.testing.assert_close(ours(x, scale=5), theirs(x, scale=5), rtol=1e-11, atol=1e-11)


def test_an_addition_in_place_keeps_type_and_shape():
    class Two(Net):
        def forward(self, x, r):
            y = self.bn(x)
            y += r
            return torch.relu(y)

    theirs = settle(Two()).bfloat16()
    ours = convert(copy.deepcopy(theirs), verbose=False)
    x = torch.randn(2, 4, 3, 3, dtype=torch.bfloat16)
    for r in (torch.randn(2, 4, 3, 3), torch.randn(4, 1, 1).bfloat16(), torch.randn(2, 4, 3, 3).bfloat16()):
        expected = theirs(x, r)
        found = ours(x, r)
        assert found.dtype == expected.dtype == torch.bfloat16
        # One rounding less where the sum is not stored in between: two units of the last place of values around 2.
        torch.testing.assert_close(found, expected, rtol=2**-7, atol=2**-6)
    with pytest.raises(RuntimeError, match="match"):
        ours(x[:1], x)

    # Outside of an addition in place, types are promoted.
    def wide(self, x):
        r = x.float()
        return torch.relu(self.bn(x) + r)

    model = settle(net(wide)).bfloat16()
    assert plan_conversion(model).fused == {"BatchNorm2d + add + relu": 1}
    assert convert(model, verbose=False)(x).dtype == torch.float32


def test_frozen_statistics_and_no_gradients():
    theirs, ours = fuse_twins(Small())
    x = image(2, 3, 14, 14)
    for model in (theirs, ours):
        model.train()
        for m in model.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.eval()
                m.weight.requires_grad_(False)
    e, f = run(theirs, x), run(ours, x)
    for name in e:
        torch.testing.assert_close(f[name], e[name], rtol=1e-10, atol=1e-10, msg=name)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-11, atol=1e-11)


def test_revert_separates():
    ours = convert(Small(), verbose=False)
    assert type(ours.block1).__name__ == "Fused<Basic>" and type(ours.block1) is not type(ours.block2)
    revert(ours)
    assert type(ours.block1) is Basic and type(ours.stem) is nn.Sequential
    assert {type(m) for m in ours.modules() if isinstance(m, nn.BatchNorm2d)} == {nn.BatchNorm2d}
