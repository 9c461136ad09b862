"""Small models that own norms in the ways that models do, and how a model is held against its converted self."""

from __future__ import annotations

import copy
from typing import List, Tuple

import torch
from torch import Tensor, nn

import isonorm.torch as iso
from isonorm.torch.convert import convert

Calls = List[Tuple[object, bool]]
#: The calls of a norm with a ReLU, and with an addition and a ReLU, as `log_calls` has them.
RELU, ADD_RELU = ("relu", False), ("relu", True)


class Net(nn.Module):
    """A convolution, two norms and an activation of its own; subclasses say what is done with them."""

    def __init__(self, act: nn.Module | None = None):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4)
        self.act = nn.ReLU(inplace=True) if act is None else act


class Basic(nn.Module):
    """ResNet's basic block: one ReLU in two places, an addition in place, and a projection of the residual or none."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)
        out = self.conv2(out)
        out = self.bn2(out)
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class Small(nn.Module):
    """A small ResNet: sequences of layers, blocks, and a classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2))
        self.block1 = Basic(8, 8)
        self.block2 = Basic(8, 12, 2)
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block2(self.block1(self.stem(x)))
        return self.head(x.mean((2, 3)))


#: What of `Small` is fused.
SMALL_FUSED = {"BatchNorm2d + silu": 1, "BatchNorm2d + relu": 2, "BatchNorm2d + add + relu": 2}


def settle(model: nn.Module) -> nn.Module:
    """Norms with parameters and running statistics that no mistake leaves unseen."""
    with torch.no_grad():
        for module in model.modules():
            for name in ("weight", "bias", "running_mean"):
                t = getattr(module, name, None)
                if isinstance(t, Tensor) and t.dim() == 1:
                    t.copy_(torch.randn(t.shape) * 0.3 + (1.0 if name == "weight" else 0.1))
            if isinstance(getattr(module, "running_var", None), Tensor):
                module.running_var.copy_(torch.rand(module.running_var.shape) + 0.5)
    return model


def log_calls(monkeypatch) -> Calls:
    """A list that gets the activation, and whether there is a residual, of every call of an isonorm BatchNorm2d."""
    calls: Calls = []
    original = iso.BatchNorm2d.forward

    def forward(self, x, residual=None, **keywords):
        calls.append((keywords.get("activation", self.activation), residual is not None))
        return original(self, x, residual, **keywords)

    monkeypatch.setattr(iso.BatchNorm2d, "forward", forward)
    return calls


def run(model: nn.Module, *inputs: Tensor) -> dict[str, Tensor]:
    """Output, gradients of inputs and parameters, and buffers afterwards."""
    inputs = tuple(x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs)
    y = model(*inputs)
    # The weights of the sum are not symmetric, so that no gradient vanishes by accident.
    weights = torch.linspace(0.5, 1.5, y.numel(), dtype=torch.float64).to(y.dtype).view(y.shape)
    model.zero_grad()
    (y * weights).sum().backward()
    found = {"output": y.detach()}
    found.update((f"gradient of input {i}", x.grad) for i, x in enumerate(inputs))
    found.update((f"gradient of {name}", p.grad) for name, p in model.named_parameters() if p.grad is not None)
    found.update((f"buffer {name}", b.clone()) for name, b in model.named_buffers())
    return found


#: In float64 both sides compute the same sums in another order: errors are u = 1.1e-16 times the condition of a few
#: layers, whose amplification stays below 1e4 in these models. A mistake is of the size of the values.
CLOSE = 1e-11


def assert_same(theirs: nn.Module, ours: nn.Module, *inputs: Tensor, close: float = CLOSE) -> None:
    """Both models, in training and then in evaluation, have the same outputs, gradients and buffers."""
    for training in (True, False):
        theirs.train(training), ours.train(training)
        expected, found = run(theirs, *inputs), run(ours, *inputs)
        assert expected.keys() == found.keys()
        for name, e in expected.items():
            assert found[name].shape == e.shape and found[name].dtype == e.dtype, name
            # Gradients that vanish (a bias in front of a norm) are rounding errors of those that do not.
            scale = max(e.abs().max().item(), 1.0) if e.numel() else 1.0
            error = (found[name] - e).abs().max().item() if e.numel() else 0.0
            assert error <= close * scale, f"{name}, training={training}: {error / scale:.1e} > {close:.1e}"


def twins(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The model in float64, and a copy of it."""
    model = settle(model.double())
    return model, copy.deepcopy(model)


def image(*shape: int) -> Tensor:
    return torch.randn(*(shape or (2, 4, 6, 5)), dtype=torch.float64)


def relative(a: Tensor, b: Tensor) -> float:
    """The distance of two tensors relative to the size of the second."""
    norm = b.double().norm().item()
    return (a.double() - b.double()).norm().item() / (norm if norm > 0 else 1.0)


def net(forward, act: nn.Module | None = None, base: type = Net) -> nn.Module:
    """A module of a class of its own with that forward."""
    return type("Given", (base,), {"forward": forward, "__module__": __name__})(act)


def act_module(self, x: Tensor) -> Tensor:
    """The forward of most convolutional networks' smallest part."""
    return self.act(self.bn(self.conv(x)))


def fuse_twins(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The model in float64, and a converted copy."""
    theirs, ours = twins(model)
    return theirs, convert(ours, verbose=False)
