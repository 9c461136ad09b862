"""The ReLU behind a residual, whose derivative is a step of its own: what is kept for it, and what it passes."""

from __future__ import annotations

import pytest
import torch

from layers import leaf, of_name


@pytest.mark.parametrize(
    "name, training", [("BatchNorm2d", True), ("BatchNorm2d", False), ("GroupNorm", True), ("LayerNorm", True)]
)
def test_a_relu_behind_a_residual_keeps_its_result(name, training, device):
    """What the next layer keeps anyway, and not the residual; PyTorch's ReLU keeps the same."""
    _, ours = of_name(name).pair(device=device, activation="relu", training=training)
    x, residual = (leaf(of_name(name).input(device=device)) for _ in range(2))
    saved = []

    def pack(t):
        saved.append(t.data_ptr())
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = ours(x, residual)
    assert x.data_ptr() in saved and y.data_ptr() in saved and residual.data_ptr() not in saved
    y.sum().backward()
    assert torch.equal(residual.grad, (y != 0).to(y.dtype))
    # Overwritten it says nothing any more.
    y = ours(x, residual)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("order", ["as x", "another"])
@pytest.mark.parametrize("who", ["x", "residual", "both"])
def test_gradients_through_a_relu_behind_a_residual(who, order, device):
    """Whatever needs a gradient, in whatever order in memory it comes; with derivatives, and many at a time."""
    layer = of_name("BatchNorm2d")
    # On GPUs there are kernels for float32 at most.
    dtype, tolerance = (torch.float64, 1e-8) if device == "cpu" else (torch.float32, 1e-3)
    theirs, ours = layer.pair(dtype, device, "relu")
    x, residual, dy = (layer.input(dtype, device) for _ in range(3))
    if order == "another":
        dy = dy.to(memory_format=torch.channels_last)
    found = []
    for call in (ours, lambda a, b: torch.relu(theirs(a) + b)):
        given = [t.clone().requires_grad_(who in (n, "both")) for n, t in (("x", x), ("residual", residual))]
        inputs = [t for t in (*given, *(ours if call is ours else theirs).parameters()) if t.requires_grad]
        y = call(*given)
        first = torch.autograd.grad(y, inputs, dy, retain_graph=True)
        again = torch.autograd.grad(y, inputs, dy, create_graph=True)
        many = torch.autograd.grad(y, inputs, torch.stack([dy, -2 * dy]), retain_graph=True, is_grads_batched=True)
        second = torch.autograd.grad(sum((g * g).sum() for g in again), inputs, allow_unused=True)
        second = [torch.zeros_like(t) if g is None else g for t, g in zip(inputs, second)]
        found.append([*first, *again, *many, *second])
    for mine, wanted in zip(*found):
        torch.testing.assert_close(mine, wanted, rtol=tolerance, atol=tolerance)


def test_a_relu_behind_a_residual_passes_what_torch_passes(device):
    """By its result: -0 and what underflows to 0 pass nothing, NaN and infinity do."""
    theirs, ours = of_name("BatchNorm2d").pair(torch.float16, device, "relu", training=False)
    x = of_name("BatchNorm2d").input(torch.float16, device)
    residual = -theirs(x).detach()
    flat = residual.view(-1)
    flat[::5] += 1
    flat[1::7] -= 1
    flat[2], flat[3], flat[4] = float("nan"), float("inf"), -float("inf")
    gradients = []
    for call in (ours, lambda x, r: torch.relu(theirs(x) + r)):
        r = leaf(residual)
        y = call(x, r)
        gradients.append((y.detach(), *torch.autograd.grad(y, r, torch.ones_like(y))))
    (y, mine), (wanted_y, wanted) = gradients
    same = torch.isclose(y, wanted_y, rtol=1e-2, atol=1e-2, equal_nan=True)
    assert same.all()
    assert torch.equal(mine, (y != 0).to(mine.dtype))
    agree = (y != 0) == (wanted_y != 0)
    assert torch.equal(mine[agree], wanted[agree]) and agree.float().mean() > 0.5
