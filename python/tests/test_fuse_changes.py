"""convert(fuse=True): what a module becomes afterwards is honoured: its original forward is back then."""

from __future__ import annotations

import pytest
import torch
from blocks import RELU, Basic, Net, act_module, assert_same, fuse_twins, image, log_calls, net, settle
from torch import nn

from isonorm.torch.convert import convert


def replace_activation(m):
    m.relu = nn.Tanh()


def replace_in_dict(m):
    m._modules["relu"] = nn.Tanh()


def drop_projection(m):
    m.downsample = None


def replace_norm(m):
    m.bn1 = settle(nn.BatchNorm2d(12).double())


def replace_convolution(m):
    m.conv2 = nn.Conv2d(12, 12, 1, bias=False).double()


def hook_on_activation(m):
    m.relu.register_forward_hook(lambda module, args, y: y * 2)


def hook_on_norm(m):
    m.bn2.register_forward_hook(lambda module, args, y: y * 2)


def forward_of_activation(m):
    m.relu.forward = torch.tanh


def forward_of_block(m):
    m.forward = lambda x: torch.tanh(x[:, :, ::2, ::2].repeat(1, 2, 1, 1)[:, :12])


CHANGES = [
    replace_activation,
    replace_in_dict,
    drop_projection,
    replace_norm,
    replace_convolution,
    hook_on_activation,
    hook_on_norm,
    forward_of_activation,
    forward_of_block,
]


@pytest.mark.parametrize("change", CHANGES, ids=[c.__name__ for c in CHANGES])
def test_changes_are_honoured(change):
    stride = 1 if change is drop_projection else 2
    model = Basic(12 if stride == 1 else 8, 12, stride)
    if stride == 1:
        model.downsample = nn.Sequential(nn.Conv2d(12, 12, 1), nn.BatchNorm2d(12))
    theirs, ours = fuse_twins(model)
    assert type(ours).__name__ == "Fused<Basic>"
    x = image(2, 12 if stride == 1 else 8, 6, 6)
    before = theirs(x).detach()
    for m in (theirs, ours):
        torch.manual_seed(7)
        change(m)
    ours.load_state_dict(theirs.state_dict())
    assert (theirs(x) - before).abs().max() > 1e-3, "the change makes no difference"
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, x)


def test_a_later_activation_of_the_norm_is_honoured():
    ours = convert(settle(Basic(8, 8)), verbose=False).eval()
    x = torch.randn(2, 8, 5, 5)
    ours.bn1.activation = "sigmoid"
    expected = ours.bn2(ours.conv2(torch.relu(torch.sigmoid(ours.bn1(ours.conv1(x), activation=None)))))
    torch.testing.assert_close(ours(x), torch.relu(expected + x))


def test_class_patches_are_honoured(monkeypatch):
    cls = net(act_module).__class__
    theirs, ours = fuse_twins(cls())
    monkeypatch.setattr(cls, "forward", lambda self, x: self.bn(self.conv(x)).tanh())
    assert_same(theirs, ours, image())


def test_methods_set_on_the_instance_are_honoured():
    class Model(Net):
        def inner(self, x):
            return self.bn(self.conv(x))

        def forward(self, x):
            return self.act(self.inner(x))

    theirs, ours = fuse_twins(Model())
    for m in (theirs, ours):
        m.inner = lambda x, m=m: m.bn2(m.conv(x))
    assert_same(theirs, ours, image())


def test_attributes_are_watched():
    class Model(Net):
        def __init__(self):
            super().__init__(nn.LeakyReLU(0.1))
            self.scale, self.twice, self.function = 2, False, torch.neg

        def forward(self, x):
            y = self.act(self.bn(self.conv(x))) * self.scale
            if hasattr(self, "shift"):
                y = y + self.shift
            return self.function(y + y if self.twice else y)

    theirs, ours = fuse_twins(Model())
    changes = [("scale", 2.5), ("scale", torch.tensor(3.0)), ("twice", True), ("function", torch.abs), ("shift", 1.0)]
    for name, value in changes:
        for m in (theirs, ours):
            setattr(m, name, value)
        assert_same(theirs, ours, image())
        for m in (theirs, ours):
            vars(m).update(scale=2, twice=False, function=torch.neg)
            vars(m).pop("shift", None)
    for m in (theirs, ours):
        m.act.negative_slope = 0.4
    assert_same(theirs, ours, image())


def sequence():
    first, second = ([nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)] for _ in range(2))
    return nn.Sequential(*first, nn.ReLU(), *second, nn.SiLU())


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.append(nn.Tanh()),
        lambda m: m.insert(2, nn.Tanh()),
        lambda m: m.__delitem__(2),
        lambda m: m.__setitem__(2, nn.Tanh()),
        lambda m: m.__setitem__(1, nn.Identity()),
        lambda m: m.pop(5),
        lambda m: m.add_module("last", nn.Tanh()),
    ],
    ids=["append", "insert", "delete", "activation", "norm", "pop", "add"],
)
def test_sequences(change, monkeypatch):
    theirs, ours = fuse_twins(sequence())
    assert isinstance(ours, nn.Sequential) and len(ours) == 6
    log = log_calls(monkeypatch)
    before = ours(image())
    assert log == [RELU, ("silu", False)] and before.shape == (2, 4, 6, 5)
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image())
    change(theirs), change(ours)
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image())
    # What was changed can be converted again.
    convert(ours, verbose=False)
    assert_same(theirs, ours, image())


def test_parts_of_a_sequence_are_plain():
    theirs, ours = fuse_twins(sequence())
    x = image()
    torch.testing.assert_close(ours[:2](x), theirs[:2](x), rtol=1e-11, atol=1e-11)
    y, z = x, x
    for a, b in zip(theirs, ours):
        y, z = a(y), b(z)
        torch.testing.assert_close(z, y, rtol=1e-11, atol=1e-11)


def test_global_hooks_see_every_module():
    ours = convert(sequence(), verbose=False)
    seen = []
    with torch.nn.modules.module.register_module_forward_hook(lambda m, args, y: seen.append(type(m).__name__)):
        ours(torch.randn(2, 4, 3, 3))
    assert seen == ["Conv2d", "BatchNorm2d", "ReLU", "Conv2d", "BatchNorm2d", "SiLU", "Fused<Sequential>"]
