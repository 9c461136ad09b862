"""Training in two processes (gloo): what PyTorch's wrappers do around its modules they do around ours."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

import isonorm.torch as iso
import ranks

STEPS = 3


def network(library):
    """Every kind of layer once, the same parameters each time."""
    torch.manual_seed(11)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), library.BatchNorm2d(8), nn.ReLU(), library.GroupNorm(2, 8),
        library.InstanceNorm2d(8, affine=True), nn.Flatten(), nn.Linear(288, 16), library.LayerNorm(16), nn.ReLU(),
        library.RMSNorm(16), nn.Linear(16, 4),
    ).double()  # fmt: skip


def batches(rank):
    """This rank's part of each step's input."""
    generator = torch.Generator().manual_seed(100 + rank)
    return [torch.randn(4, 3, 8, 8, generator=generator, dtype=torch.float64) for _ in range(STEPS)]


def train(model, inputs, no_sync=False):
    """A few steps of SGD; the losses."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step, x in enumerate(inputs):
        if no_sync and step == 0:
            # Gradients that are summed up before they are exchanged.
            with model.no_sync():
                model(x).pow(2).mean().backward()
            continue
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def same_state(ours, theirs):
    """Parameters and buffers of two models."""
    mine, other = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(other)
    whole = lambda t: t.full_tensor() if hasattr(t, "full_tensor") else t
    for name in other:
        torch.testing.assert_close(whole(mine[name]), whole(other[name]), rtol=1e-8, atol=1e-8)


def _ddp(rank, world, broadcast=True, no_sync=False, static=False):
    from torch.nn.parallel import DistributedDataParallel

    keywords = {"broadcast_buffers": broadcast, "static_graph": static}
    theirs, ours = (DistributedDataParallel(network(library), **keywords) for library in (nn, iso))
    wanted, found = (train(model, batches(rank), no_sync) for model in (theirs, ours))
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8)
    same_state(ours, theirs)
    # The ranks agree on the parameters.
    for p in ours.parameters():
        others = [torch.empty_like(p) for _ in range(world)]
        dist.all_gather(others, p.detach())
        assert torch.equal(others[0], others[1])


def _fsdp(rank, world, mixed):
    """FSDP2: parameters are DTensors outside of forward and backward."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16)} if mixed else {}
    models = []
    for library in (nn, iso):
        model = network(library).float() if mixed else network(library)
        for part in model:
            # PyTorch's BatchNorm takes no parameters of another type than its statistics.
            batch = isinstance(part, nn.BatchNorm2d)
            if list(part.parameters()):
                fully_shard(part, **({} if batch else policy))
        models.append(fully_shard(model, **policy))
    theirs, ours = models
    wanted, found = (train(model, [x.float() for x in batches(rank)] if mixed else batches(rank)) for model in models)
    tolerance = 0.05 if mixed else 1e-8
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    if not mixed:
        same_state(ours, theirs)


def _dtensor(rank, world):
    """DTensors, as inputs and parameters, go to PyTorch's functions: sequence parallelism works as there."""
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh

    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(1)
    x = torch.randn(4, 6, 8, dtype=torch.float64)
    for name in ("LayerNorm", "RMSNorm"):
        theirs, ours = getattr(nn, name)(8).double(), getattr(iso, name)(8).double()
        found = []
        for module in (theirs, ours):
            for key, p in list(module.named_parameters()):
                setattr(module, key, nn.Parameter(distribute_tensor(p.detach(), mesh, [Replicate()])))
            y = module(distribute_tensor(x, mesh, [Shard(0)]))
            assert isinstance(y, DTensor)
            y.pow(2).sum().backward()
            found.append((y.full_tensor(), module.weight.grad.full_tensor()))
        torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-9)


WORKS = {
    "data parallel": lambda rank, world: _ddp(rank, world),
    "data parallel, summed gradients": lambda rank, world: _ddp(rank, world, broadcast=False, no_sync=True),
    "data parallel, static graph": lambda rank, world: _ddp(rank, world, static=True),
    "fully sharded": lambda rank, world: _fsdp(rank, world, mixed=False),
    "fully sharded, bf16 computation": lambda rank, world: _fsdp(rank, world, mixed=True),
    "distributed tensors": _dtensor,
}


def _all(rank, world, device, folder):
    """Every piece of work; what one raises goes to a file, and the next one begins."""
    for name, work in WORKS.items():
        try:
            work(rank, world)
        except Exception:
            Path(folder, f"{name} on rank {rank}").write_text(traceback.format_exc())
        Path(folder, f"{name} ran on rank {rank}").touch()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the two processes, which are started once for all tests, left what they raised."""
    at = tmp_path_factory.mktemp("ranks")
    ranks.run(_all, 2, "cpu", str(at))
    return at


@pytest.mark.parametrize("name", WORKS)
def test_in_two_processes(name, folder):
    if name.startswith("fully"):
        fsdp = pytest.importorskip("torch.distributed.fsdp", reason="no FSDP")
        if not hasattr(fsdp, "fully_shard"):
            pytest.skip("no fully_shard in this PyTorch")
    if name == "distributed tensors":
        pytest.importorskip("torch.distributed.tensor", reason="no DTensor")
    for rank in range(2):
        assert (folder / f"{name} ran on rank {rank}").exists()
        raised = folder / f"{name} on rank {rank}"
        assert not raised.exists(), raised.read_text()
