"""Part 2: what a module's call costs the host, through autograd: forward and backward apart.

The tensors are tiny, so that the device is never the limit. On a GPU calls are enqueued without waiting, fewer at a
time than its queue takes; only the enqueueing is timed. Everybody takes turns; times are medians over batches of
calls.
"""

from __future__ import annotations

import dataclasses
import gc
import statistics
import time
from typing import Callable, Dict, List, Tuple

import torch

import isonorm.torch

from . import table

# Calls between two waits: a call may launch a dozen kernels, and a queue takes about a thousand.
BATCH = 50
BATCHES = 60
QUICK_BATCHES = 6
WARM_UP = 2
FORWARD, BACKWARD, NO_GRAD = "forward", "backward", "no_grad"


@dataclasses.dataclass(frozen=True)
class Subject:
    """Modules that do the same on the same input."""

    name: str
    shape: Tuple[int, ...]
    module: Callable[[object], torch.nn.Module]


SUBJECTS = (
    Subject("BatchNorm2d", (4, 16, 4, 4), lambda nn: nn.BatchNorm2d(16)),
    Subject("LayerNorm", (8, 64), lambda nn: nn.LayerNorm(64)),
    Subject("RMSNorm", (8, 64), lambda nn: nn.RMSNorm(64, eps=1e-6)),
    Subject("GroupNorm", (4, 16, 4, 4), lambda nn: nn.GroupNorm(4, 16)),
    Subject("InstanceNorm2d", (4, 16, 4, 4), lambda nn: nn.InstanceNorm2d(16)),
)
# What any differentiable operation costs.
LEAST = "x + 1"


class _PlusOne(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


@dataclasses.dataclass
class Row:
    """Seconds of a call: by who and what."""

    name: str
    seconds: Dict[Tuple[str, str], float]

    def recorded(self) -> dict:
        of: Dict[str, Dict[str, float]] = {}
        for (who, what), seconds in self.seconds.items():
            of.setdefault(who, {})[what + "_s"] = seconds
        return {"module": self.name, **of}


def measure(device: torch.device, quick: bool, say: Callable[[str], None]) -> List[Row]:
    """All subjects, and what any operation costs."""
    batches = QUICK_BATCHES if quick else BATCHES
    rows = []
    for subject in SUBJECTS:
        say(f"overhead: {subject.name}")
        modules = {"isonorm": subject.module(isonorm.torch), "torch": subject.module(torch.nn)}
        rows.append(Row(subject.name, _seconds(modules, subject.shape, device, batches)))
    rows.append(Row(LEAST, _seconds({"torch": _PlusOne()}, SUBJECTS[0].shape, device, batches)))
    return rows


def text(rows: List[Row]) -> str:
    """A table."""
    heads = ["host, µs a call"]
    for what in ("no grad", FORWARD, BACKWARD):
        heads += [what + ": isonorm", "torch", "ratio"]
    lines = []
    for row in rows:
        cells = [row.name]
        for what in (NO_GRAD, FORWARD, BACKWARD):
            own, theirs = row.seconds.get(("isonorm", what)), row.seconds.get(("torch", what))
            both = own is not None and theirs is not None
            cells += [_micro(own), _micro(theirs), table.times(own / theirs if both else None)]
        lines.append(cells)
    about = (
        "ratio: isonorm's time over PyTorch's. no grad: forward without autograd. Tensors have 512 or 1024 elements."
    )
    return table.text_table(heads, lines) + "\n\n" + about


def _micro(seconds) -> str:
    return "" if seconds is None else table.digits(seconds * 1e6)


def _seconds(modules: Dict[str, torch.nn.Module], shape, device: torch.device, batches: int):
    x = torch.randn(shape, device=device, requires_grad=True)
    gradient = torch.randn(shape, device=device)
    samples: Dict[Tuple[str, str], List[float]] = {}
    modules = {who: module.to(device) for who, module in modules.items()}
    # Collecting garbage would meet one call in thousands.
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for number in range(WARM_UP + batches):
            for who, module in modules.items():
                for what, seconds in _batch(module, x, gradient).items():
                    if number >= WARM_UP:
                        samples.setdefault((who, what), []).append(seconds)
    finally:
        if collects:
            gc.enable()
    return {key: statistics.median(taken) for key, taken in samples.items()}


def _batch(module: torch.nn.Module, x: torch.Tensor, gradient: torch.Tensor) -> Dict[str, float]:
    """Seconds of a call, over one batch."""
    found = {}
    with torch.no_grad():
        found[NO_GRAD], _ = _timed(lambda: module(x), [()] * BATCH, x.device)
    found[FORWARD], outputs = _timed(lambda: module(x), [()] * BATCH, x.device)
    leaves = [x, *module.parameters()]
    found[BACKWARD], _ = _timed(lambda y: torch.autograd.grad(y, leaves, gradient), [(y,) for y in outputs], x.device)
    return found


def _timed(call, arguments: List[tuple], device: torch.device):
    """Seconds of a call until the host has it behind it, and what the calls returned."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    results = [call(*given) for given in arguments]
    seconds = (time.perf_counter() - start) / len(arguments)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return seconds, results
