"""Several ranks of a process group, as processes of this machine."""

from __future__ import annotations

import os
import tempfile
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

#: A collective that a rank never joins is a failure, not a test that hangs.
SECONDS = 120


def run(work, ranks: int, device: str = "cpu", *args) -> None:
    """Calls `work(rank, ranks, device, *args)` in each of so many processes with a process group; raises what any of them raises."""
    # A group that did not come about, on a machine with much else to do, says nothing about the work: once more.
    if not _attempt(work, ranks, device, args):
        assert _attempt(work, ranks, device, args), "the ranks did not find each other, twice"


def _attempt(work, ranks: int, device: str, args) -> bool:
    """Whether the ranks found each other."""
    context = mp.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        failures = context.SimpleQueue()
        begun = context.Value("i", 0)
        processes = [
            context.Process(target=_rank, args=(work, rank, ranks, device, folder, failures, begun, args))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(SECONDS)
        hanging = [process for process in processes if process.is_alive()]
        for process in hanging:
            process.terminate()
        if begun.value < ranks:
            return False
        if not failures.empty():
            raise AssertionError(failures.get())
        assert not hanging, f"{len(hanging)} of {ranks} ranks did not end within {SECONDS} s"
        assert all(process.exitcode == 0 for process in processes), [process.exitcode for process in processes]
        return True


def _rank(work, rank, ranks, device, folder, failures, begun, args):
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(rank)
    else:
        # A GPU that is there would be taken for the device of a mesh.
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    backend = "nccl" if device == "cuda" else "gloo"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    with begun.get_lock():
        begun.value += 1
    try:
        work(rank, ranks, torch.device(device, rank) if device == "cuda" else torch.device("cpu"), *args)
    except BaseException:
        failures.put(f"rank {rank}:\n{traceback.format_exc()}")
        raise
    finally:
        dist.destroy_process_group()
    # PyTorch's threads may be running still when an interpreter ends, which then aborts, now and then.
    os._exit(0)
