"""What whole models share: contestants that take turns, their peak memory, and what does not run."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import sys
import time
from typing import Callable, Dict, List, Optional

import torch

from . import peers
from .layers import reason_of
from .timing import Times

WARM_UP = 3


@dataclasses.dataclass
class Contestant:
    """Somebody's way to run a model: `make` returns the function that runs it once."""

    name: str
    make: Callable[[], Callable[[], object]]


@dataclasses.dataclass
class Result:
    """What was found about one."""

    name: str
    # Of one run; None where it was left out, for the reason.
    times: Optional[Times] = None
    peak_bytes: Optional[int] = None
    values: List[float] = dataclasses.field(default_factory=list)
    reason: str = ""


class OutOfMemory(Exception):
    """Somebody had not enough memory."""


def compete(
    contestants: List[Contestant],
    device: torch.device,
    samples: int,
    runs: int,
    warm_up: int,
    say: Callable[[str], None],
) -> Dict[str, Result]:
    """Seconds of one run of each, in turns: `samples` of `runs` runs each.

    The values are what the first `warm_up` runs returned. Peak memory is that of one run, what others keep taken off.
    Raises `OutOfMemory` where the device has too little memory.
    """
    results = {contestant.name: Result(contestant.name) for contestant in contestants}
    ready: Dict[str, Callable[[], object]] = {}
    taken: Dict[str, List[float]] = {}
    _forget_compiled()
    try:
        before = _allocated(device)
        for contestant in contestants:
            say(f"{contestant.name}: preparing")
            result = results[contestant.name]
            others = _allocated(device) - before
            try:
                run = contestant.make()
                result.values = [value for value in (run() for _ in range(warm_up)) if value is not None]
                result.values = [float(value) for value in result.values]
                result.peak_bytes = _peak_of(run, device, others)
            except torch.cuda.OutOfMemoryError:
                raise
            except Exception as error:  # Whatever it is, the others go on.
                result.reason = reason_of(error)
                say(f"{contestant.name} is left out: {result.reason}")
                continue
            ready[contestant.name], taken[contestant.name] = run, []
        for number in range(samples):
            say(f"round {number + 1} of {samples}")
            for name, run in ready.items():
                taken[name].append(_seconds(run, runs, device))
    except torch.cuda.OutOfMemoryError:
        # Outside, where no frame of the failed run keeps its tensors.
        failed = True
    else:
        failed = False
    ready.clear()
    release(device)
    if failed:
        raise OutOfMemory
    for name, seconds in taken.items():
        results[name].times = Times(seconds)
    return results


def _seconds(run: Callable[[], object], runs: int, device: torch.device) -> float:
    _wait(device)
    start = time.perf_counter()
    for _ in range(runs):
        run()
    _wait(device)
    return (time.perf_counter() - start) / runs


def _peak_of(run: Callable[[], object], device: torch.device, others: int) -> Optional[int]:
    if device.type != "cuda":
        return None
    _wait(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    _wait(device)
    return torch.cuda.max_memory_allocated(device) - others


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _allocated(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def release(device: torch.device) -> None:
    """Gives memory back that nobody uses."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextlib.contextmanager
def convolutions_are_chosen():
    """cuDNN measures its convolutions and takes the fastest, as whoever trains lets it do."""
    cudnn = torch.backends.cudnn
    # A context, since flags cannot be set alone where somebody has frozen them; it sets what it is not given to a default of its own.
    with cudnn.flags(cudnn.enabled, True, cudnn.benchmark_limit, cudnn.deterministic, cudnn.allow_tf32):
        yield


def compiled(module: torch.nn.Module) -> torch.nn.Module:
    """What `torch.compile` makes of a model."""
    peers.may_keep_graphs(False)
    return torch.compile(module)


def _forget_compiled() -> None:
    """What was compiled for others counts against how often a function is compiled."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        dynamo.reset()
