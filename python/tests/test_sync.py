"""SyncBatchNorm: several ranks compute what one computes of all their inputs together, each its part."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

import isonorm.torch as iso
import ranks
from conftest import NO_GPU

CHANNELS = 6

#: Samples of each rank: even, uneven, one that is empty, a channel with a single value on a rank.
PARTS = {
    "even": [3, 3, 3],
    "uneven": [5, 1, 2],
    "empty": [4, 0, 3],
    "first empty": [0, 4, 2],
}


def places():
    """Backends and numbers of ranks; those on GPUs are skipped where there are not so many."""
    for count in (2, 3):
        yield pytest.param("cpu", count, id=f"gloo-{count}")
    for count in (2, 4):
        missing = not torch.cuda.is_available() or torch.cuda.device_count() < count
        reason = NO_GPU if not torch.cuda.is_available() else f"fewer than {count} GPUs"
        yield pytest.param("cuda", count, id=f"nccl-{count}", marks=pytest.mark.skipif(missing, reason=reason))


def whole(parts, shape, dtype, device, seed=7):
    """The same input, residual and gradient on every rank; a mean that is far from 0."""
    generator = torch.Generator().manual_seed(seed)
    total = (sum(parts), *shape)
    x, r, dy = (torch.randn(total, generator=generator) for _ in range(3))
    return [t.to(device, dtype) for t in (3 * x + 20, r, dy)]


def part_of(t, parts, rank, memory_format):
    start = sum(parts[:rank])
    return (
        t[start : start + parts[rank]]
        .contiguous(memory_format=memory_format)
        .clone(memory_format=torch.preserve_format)
    )


def reference(x, residual, dy, norm, activation):
    """Output, gradients and running statistics in float64, by torch's BatchNorm of the whole batch."""
    norm = norm.double()
    x = x.double().requires_grad_()
    residual = residual.double().requires_grad_() if residual is not None else None
    y = norm(x)
    y = y if residual is None else y + residual
    y = {None: lambda t: t, "relu": torch.relu, "silu": nn.functional.silu}[activation](y)
    y.backward(dy.double())
    return y.detach(), x.grad, None if residual is None else residual.grad, norm


def compare(rank, count, device, name, kind, dtype, activation, has_residual, momentum):
    parts = PARTS[name][:count] if count < 4 else [*PARTS[name], 2]
    memory_format = torch.channels_last if kind == "channels_last" else torch.contiguous_format
    shape = (CHANNELS,) if kind == "rows" else (CHANNELS, 4, 3) if kind != "odd" else (CHANNELS, 5, 7)
    x, r, dy = whole(parts, shape, dtype, device)
    torch.manual_seed(1)
    plain = (
        nn.BatchNorm1d(CHANNELS, momentum=momentum) if kind == "rows" else nn.BatchNorm2d(CHANNELS, momentum=momentum)
    )
    nn.init.normal_(plain.weight), nn.init.normal_(plain.bias)
    plain = plain.to(device)
    sync = iso.convert_sync_batchnorm(plain)
    sync.activation = activation
    exact = (
        nn.BatchNorm1d(CHANNELS, momentum=momentum) if kind == "rows" else nn.BatchNorm2d(CHANNELS, momentum=momentum)
    )
    exact.load_state_dict({k: v.clone() for k, v in plain.state_dict().items()})
    exact = exact.to(device)
    y_all, dx_all, dr_all, exact = reference(x, r if has_residual else None, dy, exact, activation)

    mine = part_of(x, parts, rank, memory_format).requires_grad_()
    residual = part_of(r, parts, rank, memory_format).requires_grad_() if has_residual else None
    y = sync(mine, residual)
    y.backward(part_of(dy, parts, rank, memory_format))
    # One rounding of the result's type, and of the terms of the input's gradient, each about 1 to 10 here.
    close = {"rtol": 4 * torch.finfo(dtype).eps, "atol": 16 * torch.finfo(dtype).eps}
    start = sum(parts[:rank])
    here = slice(start, start + parts[rank])
    # At a kink of the activation a rounding decides; there are none so near to it.
    torch.testing.assert_close(y.double(), y_all[here], **close)
    torch.testing.assert_close(mine.grad.double(), dx_all[here], **close)
    if has_residual:
        torch.testing.assert_close(residual.grad.double(), dr_all[here], **close)
    # Gradients of parameters stay of this rank's part; their sum is that of the whole.
    for ours, theirs in ((sync.weight, exact.weight), (sync.bias, exact.bias)):
        total = ours.grad.double().clone()
        dist.all_reduce(total)
        torch.testing.assert_close(
            total,
            theirs.grad,
            rtol=1e-2 if dtype != torch.float32 else 1e-4,
            atol=0.3 if dtype != torch.float32 else 1e-3,
        )
    torch.testing.assert_close(sync.running_mean.double(), exact.running_mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(sync.running_var.double(), exact.running_var, rtol=1e-5, atol=1e-6)
    assert sync.num_batches_tracked.item() == 1
    assert y.is_contiguous(memory_format=memory_format)


CASES = [
    ("even", "contiguous", torch.float32, None, False, 0.1),
    ("uneven", "channels_last", torch.float32, "relu", False, 0.3),
    ("empty", "odd", torch.float32, "silu", True, None),
    ("first empty", "rows", torch.float32, None, True, 0.1),
    ("uneven", "channels_last", torch.bfloat16, None, False, 0.1),
    ("empty", "contiguous", torch.float16, None, True, 0.1),
]


def several_cases(rank, count, device):
    for case in CASES:
        try:
            compare(rank, count, device, *case)
        except Exception as error:
            raise AssertionError(f"{case}: {error}") from error


@pytest.mark.parametrize("place, count", places())
def test_ranks_agree_with_the_whole(place, count):
    ranks.run(several_cases, count, place)


def relu_with_residual(rank, count, device):
    # A ReLU behind a residual keeps its result; its kink is kept away from by whole numbers and halves.
    parts = [2, 3, 1, 2][:count]
    x, _, dy = whole(parts, (8, 4, 4), torch.float32, device)
    r = torch.where(torch.randn(x.shape, generator=torch.Generator().manual_seed(3)) > 0, 20.0, -20.0).to(device)
    sync = iso.SyncBatchNorm(8, activation="relu").to(device)
    exact = nn.BatchNorm2d(8).to(device)
    y_all, dx_all, dr_all, _ = reference(x, r, dy, exact, "relu")
    mine = part_of(x, parts, rank, torch.contiguous_format).requires_grad_()
    residual = part_of(r, parts, rank, torch.contiguous_format).requires_grad_()
    y = sync(mine, residual)
    y.backward(part_of(dy, parts, rank, torch.contiguous_format))
    start = sum(parts[:rank])
    here = slice(start, start + parts[rank])
    torch.testing.assert_close(y.double(), y_all[here], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mine.grad.double(), dx_all[here], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(residual.grad.double(), dr_all[here], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("place, count", places())
def test_relu_behind_a_residual(place, count):
    ranks.run(relu_with_residual, count, place)


def nothing_anywhere(rank, count, device):
    sync = iso.SyncBatchNorm(4).to(device)
    x = torch.empty(0, 4, 3, device=device, requires_grad=True)
    y = sync(x)
    y.sum().backward()
    assert y.shape == x.shape and x.grad.shape == x.shape
    assert sync.running_mean.eq(0).all() and sync.running_var.eq(1).all()
    assert sync.weight.grad.eq(0).all()


def groups_of_their_own(rank, count, device):
    # Two groups of one process group each see their own ranks only; the group is not ignored.
    groups = [dist.new_group([r]) for r in range(count)]
    pair = dist.new_group(list(range(count)))
    x = torch.full((2, 3, 4), float(rank), device=device) + torch.arange(4.0, device=device)
    alone = iso.SyncBatchNorm(3, process_group=groups[rank]).to(device)
    alone(x)
    torch.testing.assert_close(alone.running_mean, torch.full((3,), 0.1 * (rank + 1.5), device=device))
    together = iso.SyncBatchNorm(3, process_group=pair).to(device)
    together(x)
    torch.testing.assert_close(together.running_mean, torch.full((3,), 0.1 * ((count - 1) / 2 + 1.5), device=device))


def evaluation_sends_nothing(rank, count, device):
    sync = iso.SyncBatchNorm(3).to(device).eval()
    if rank == 0:
        # The others never call it.
        y = sync(torch.ones(2, 3, 4, device=device))
        torch.testing.assert_close(y, torch.full_like(y, 1 / (1 + 1e-5) ** 0.5))


def wrong_input_sends_nothing(rank, count, device):
    sync = iso.SyncBatchNorm(3).to(device)
    with pytest.raises(ValueError, match=r"expected \(2,\)"):
        sync(torch.ones(2, 2, 4, device=device))
    with pytest.raises(TypeError, match="int64"):
        sync(torch.ones(2, 3, 4, device=device, dtype=torch.int64))


def second_derivative_raises(rank, count, device):
    sync = iso.SyncBatchNorm(3).to(device)
    x = torch.randn(2, 3, 4, device=device, requires_grad=True)
    (g,) = torch.autograd.grad(sync(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="a second was asked for"):
        torch.autograd.grad(g.sum(), x)


def the_rest(rank, count, device):
    nothing_anywhere(rank, count, device)
    groups_of_their_own(rank, count, device)
    evaluation_sends_nothing(rank, count, device)
    wrong_input_sends_nothing(rank, count, device)
    second_derivative_raises(rank, count, device)


@pytest.mark.parametrize("place, count", [p for p in places() if p.values[1] == 2])
def test_empty_groups_evaluation_errors(place, count):
    ranks.run(the_rest, count, place)


def trains_like_one(rank, count, device):
    """Ten steps of ranks that add up their gradients are ten steps of one process with the whole batch."""

    def model():
        torch.manual_seed(5)
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)).to(
            device
        )

    dtype = torch.float64 if device.type == "cpu" else torch.float32
    whole_model, split = model().double(), iso.convert_sync_batchnorm(model().to(dtype))
    # DistributedDataParallel takes a SyncBatchNorm on GPUs only; what it does is done by hand elsewhere.
    parallel = nn.parallel.DistributedDataParallel(split, device_ids=[device.index]) if device.type == "cuda" else split
    parts = [3, 1, 2, 2][:count]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (whole_model, split)]
    for step in range(10):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(sum(parts), 3, 8, 8, generator=generator).double().to(device)
        start = sum(parts[:rank])
        mine = x[start : start + parts[rank]].to(dtype)
        for optimizer in optimizers:
            optimizer.zero_grad()
        (whole_model(x).square().sum() / sum(parts)).backward()
        # Gradients are averaged over the ranks.
        (parallel(mine).square().sum() * count / sum(parts)).backward()
        if parallel is split:
            for parameter in split.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= count
        for optimizer in optimizers:
            optimizer.step()
    close = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 1e-3, "atol": 1e-4}
    for (name, ours), theirs in zip(split.state_dict().items(), whole_model.state_dict().values()):
        torch.testing.assert_close(
            ours.double(), theirs.double(), msg=lambda text, name=name: f"{name}: {text}", **close
        )


@pytest.mark.parametrize("place, count", places())
def test_training_like_one_process(place, count):
    ranks.run(trains_like_one, count, place)


def test_without_a_process_group_it_is_a_batch_norm():
    sync, plain = iso.SyncBatchNorm(4), nn.BatchNorm2d(4)
    x = torch.randn(3, 4, 5, 2)
    torch.testing.assert_close(sync(x), plain(x))
    torch.testing.assert_close(sync.running_var, plain.running_var)
    assert isinstance(sync, nn.SyncBatchNorm)


def test_conversion_keeps_parameters_and_activations():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Sequential(iso.BatchNorm2d(4, activation="relu")))
    before = dict(model.named_parameters())
    state = {name: value.clone() for name, value in model.state_dict().items()}
    converted = iso.convert_sync_batchnorm(model)
    assert type(converted[1]) is iso.SyncBatchNorm and converted[2][0].activation == "relu"
    assert all(value is before[name] for name, value in converted.named_parameters())
    assert converted.state_dict().keys() == state.keys()
