"""Training with our layers follows training with PyTorch's."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from torch import nn

import isonorm.torch as iso

STEPS = 200


def network(library, fused=False):
    """A small residual CNN; fused, with the activation and the residual inside the norms."""

    class Block(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
            self.a, self.b = library.BatchNorm2d(channels), library.BatchNorm2d(channels)

        def forward(self, x):
            if fused:
                return self.b(self.second(self.a(self.first(x), activation="relu")), x, activation="relu")
            return (self.b(self.second(self.a(self.first(x)).relu())) + x).relu()

    torch.manual_seed(42)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), library.BatchNorm2d(8), nn.ReLU(), Block(8), nn.MaxPool2d(2), library.GroupNorm(4, 8),
        Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), library.LayerNorm(8), nn.Linear(8, 4),
    )  # fmt: skip


def data():
    """Images of four kinds of stripes in noise."""
    generator = torch.Generator().manual_seed(9)
    labels = torch.randint(0, 4, (256,), generator=generator)
    grid = torch.arange(12.0)
    waves = torch.stack([(grid * (k + 1) * 0.7).sin() for k in range(4)])[labels]
    return waves[:, None, None, :] + 0.8 * torch.randn(256, 1, 12, 12, generator=generator), labels


def losses(model, steps, dtype, rate=0.02):
    """The loss at each step of training."""
    images, labels = data()
    images = images.to(dtype)
    optimizer = torch.optim.SGD(model.to(dtype).parameters(), lr=rate, momentum=0.9)
    curve = []
    for step in range(steps):
        at = torch.arange(step * 32, (step + 1) * 32) % 256
        loss = nn.functional.cross_entropy(model(images[at]), labels[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        curve.append(loss.item())
    return torch.tensor(curve, dtype=torch.float64)


@functools.lru_cache(maxsize=None)
def exact_curve():
    """PyTorch's in f64."""
    return losses(network(nn), STEPS, torch.float64)


@pytest.mark.parametrize("fused", [False, True], ids=["norms", "fused"])
def test_same_curve(fused):
    """In f64 both runs differ by roundings of 1e-16, which training amplifies: by far less than 1e9 in 200 steps."""
    wanted = exact_curve()
    found = losses(network(iso, fused), STEPS, torch.float64)
    assert wanted[-20:].mean() < 0.5 * wanted[:20].mean(), "it does not learn: the comparison would say nothing"
    torch.testing.assert_close(found, wanted, rtol=1e-7, atol=1e-7)


def test_same_curve_in_single_precision():
    """In f32 a run may part from the exact one as far as PyTorch's own does (twice, for chance), all along."""
    exact = exact_curve()
    theirs, ours = losses(network(nn), STEPS, torch.float32), losses(network(iso, True), STEPS, torch.float32)
    for part in range(0, STEPS, 50):
        at = slice(part, part + 50)
        allowed = max(2 * (theirs[at] - exact[at]).abs().max(), 1e-4)
        assert (ours[at] - exact[at]).abs().max() <= allowed
    # Chance decides which of two small numbers is the larger, but not that the level of the loss is another.
    assert abs(ours[-50:].mean() - exact[-50:].mean()) < 0.05 * exact[:50].mean()


def test_transformer_with_streams():
    """The residual stream of pre-norm blocks, as fused and as separate operations: the same gradients."""

    class Layer(nn.Module):
        def __init__(self, library):
            super().__init__()
            self.norms = nn.ModuleList([library.LayerNorm(16), library.RMSNorm(16)])
            self.linears = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])

    def forward(layers, x, fused):
        stream, update = x, torch.zeros_like(x)
        for layer in layers:
            for norm, linear in zip(layer.norms, layer.linears):
                if fused:
                    y, stream = norm(update, stream=stream)
                else:
                    stream = stream + update
                    y = norm(stream)
                update = linear(y).tanh()
        return stream + update

    def build(library):
        torch.manual_seed(4)
        return nn.ModuleList([Layer(library) for _ in range(3)]).double()

    x = torch.randn(2, 5, 16, dtype=torch.float64)
    theirs, ours = build(nn), build(iso)
    forward(theirs, x, False).pow(2).sum().backward()
    forward(ours, x, True).pow(2).sum().backward()
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters()):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-8, atol=1e-8, msg=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("momentum", [0.1, None], ids=str)
def test_a_thousand_steps_of_running_statistics(momentum, dtype):
    """Each step rounds a statistic twice; with a momentum of 0.1 what is older than ten steps has faded, so that some
    20 roundings are left, and without one a thousand steps have 2000."""
    theirs, ours = (library.BatchNorm2d(5, momentum=momentum) for library in (nn, iso))
    exact = copy.deepcopy(theirs).double()
    if dtype == torch.float64:
        theirs, ours = theirs.double(), ours.double()
    torch.manual_seed(3)
    for _ in range(1000):
        x = (torch.randn(2, 5, 3, 3) * 2 + 3).to(dtype)
        with torch.no_grad():
            ours(x)
            exact(x.double())
            if dtype != torch.bfloat16:
                theirs(x)
    unit = 2.0**-53 if dtype == torch.float64 else 2.0**-24
    roundings = 2 * (10 if momentum else 1000) + 20
    assert ours.num_batches_tracked == 1000
    for name in ("running_mean", "running_var"):
        wanted, mine = getattr(exact, name), getattr(ours, name).double()
        error = (mine - wanted).abs()
        # The data's mean is 3, their variance 4: the sums' terms are of that size.
        assert (error <= roundings * unit * 10).all(), f"{name}: off by {error.max():.3g}"
        if dtype != torch.bfloat16:
            torch.testing.assert_close(
                getattr(ours, name), getattr(theirs, name), rtol=2 * roundings * unit, atol=10 * roundings * unit
            )
