"""Part 4: blocks of a GPT, forward and backward: PyTorch's norms, and isonorm's with the residual stream in their
kernels.

Everybody has the same weights; the error is the largest difference of the output from PyTorch's in f32, as a share of
its largest value.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Callable, Dict, List, Optional

import torch

import isonorm.torch

from . import table
from .gpt import Blocks
from .models import WARM_UP, Contestant, OutOfMemory, Result, compete, compiled, release
from .step import CALLED, COMPILED, EAGER, OWN, OWN_COMPILED
from .tensors import TORCH_DTYPES

EPS = 1e-5
NORMS = ("LayerNorm", "RMSNorm")


@dataclasses.dataclass
class Options:
    """What the command line says; None where it says nothing."""

    device: torch.device
    quick: bool = False
    batch: Optional[int] = None
    length: Optional[int] = None
    width: Optional[int] = None
    layers: Optional[int] = None
    dtype: Optional[str] = None
    compile: bool = True

    def resolved(self) -> Options:
        """With what is measured where nothing is said."""
        if self.device.type == "cuda":
            batch, length, width, layers, dtype = 8, 1024, 2048, 2 if self.quick else 4, "bf16"
        else:
            batch, length, width, layers, dtype = (1, 32, 64, 1, "f32") if self.quick else (2, 128, 256, 2, "f32")
        given = lambda value, default: default if value is None else value
        return dataclasses.replace(
            self,
            batch=given(self.batch, batch),
            length=given(self.length, length),
            width=given(self.width, width),
            layers=given(self.layers, layers),
            dtype=given(self.dtype, dtype),
        )

    @property
    def heads(self) -> int:
        """Heads of 64 or 128 channels, as models have them; one where the width is smaller."""
        return next((self.width // size for size in (128, 64) if self.width % size == 0), 1)


@dataclasses.dataclass
class Outcome:
    """One kind of norm, measured: forward alone, and forward and backward."""

    norm: str
    options: Options
    forward: Dict[str, Result]
    both: Dict[str, Result]
    errors: Dict[str, float]

    def recorded(self) -> dict:
        def one(name: str) -> dict:
            forward, both = self.forward[name], self.both[name]
            if forward.times is None or both.times is None:
                return {"left_out": forward.reason or both.reason}
            peak = {} if both.peak_bytes is None else {"peak_bytes": both.peak_bytes}
            times = {"forward_s": forward.times.median, "forward_backward_s": both.times.median}
            error = {"error": self.errors[name]} if 0 <= self.errors.get(name, -1) < float("inf") else {}
            return {**times, "spread": both.times.spread, **peak, **error}

        o = self.options
        sizes = {"batch": o.batch, "length": o.length, "width": o.width, "heads": o.heads, "layers": o.layers}
        return {"norm": self.norm, "dtype": o.dtype, **sizes, "results": {name: one(name) for name in self.both}}


def measure(options: Options, say: Callable[[str], None]) -> List[Outcome]:
    """Blocks with each kind of norm."""
    options = options.resolved()
    return [_measure(norm, options, lambda what, norm=norm: say(f"block, {norm}: {what}")) for norm in NORMS]


def _measure(norm: str, options: Options, say: Callable[[str], None]) -> Outcome:
    device, dtype = options.device, TORCH_DTYPES[options.dtype]
    torch.manual_seed(0)
    kind = lambda space: lambda width: getattr(space, norm)(width, eps=EPS)
    make = lambda space, fused: Blocks(kind(space), options.width, options.heads, options.layers, fused)
    plain, fused = make(torch.nn, False), make(isonorm.torch, True)
    # Both have their weights in the type of the data, as models of this kind have.
    fused.load_state_dict(plain.state_dict())
    of = {EAGER: plain, OWN: fused}
    x = torch.randn(options.batch, options.length, options.width, device=device).to(dtype).requires_grad_()
    dy = torch.randn_like(x)
    with torch.no_grad():
        rounded = copy.deepcopy(plain).to(dtype).float().to(device)
        exact = rounded(x.float())
        del rounded
    errors: Dict[str, float] = {}

    def contestant(name: str, backward: bool) -> Contestant:
        def run_of():
            model = copy.deepcopy(of[OWN if name in (OWN, OWN_COMPILED) else EAGER]).to(device=device, dtype=dtype)
            model = compiled(model) if name in (COMPILED, OWN_COMPILED) else model
            if not backward:
                with torch.no_grad():
                    errors[name] = ((model(x).float() - exact).abs().max() / exact.abs().max()).item()
            return _run(model, x, dy, backward)

        return Contestant(name, run_of)

    names = [EAGER, OWN, *([COMPILED, OWN_COMPILED] if options.compile else [])]
    samples, runs = (
        ((3, 10) if options.quick else (9, 20)) if device.type == "cuda" else ((2, 1) if options.quick else (9, 1))
    )
    found = []
    for backward in (False, True):
        try:
            found.append(compete([contestant(n, backward) for n in names], device, samples, runs, WARM_UP, say))
        except OutOfMemory:
            raise MemoryError("the blocks do not fit the memory; choose a smaller --block-batch or --width") from None
        release(device)
    return Outcome(norm, options, *found, errors)


def _run(model: torch.nn.Module, x: torch.Tensor, dy: torch.Tensor, backward: bool) -> Callable[[], None]:
    def forward() -> None:
        with torch.no_grad():
            model(x)

    def both() -> None:
        x.grad = None
        model.zero_grad(set_to_none=True)
        model(x).backward(dy)

    return both if backward else forward


def text(outcomes: List[Outcome]) -> str:
    """A table for each kind of norm."""
    return "\n\n".join(_one(outcome) for outcome in outcomes)


def _one(outcome: Outcome) -> str:
    o = outcome.options
    blocks = f"{o.layers} GPT block{'s' if o.layers > 1 else ''} with {outcome.norm}"
    lines = [f"{blocks}, {o.dtype}, x is {o.batch}x{o.length}x{o.width}, {o.heads} head{'s' if o.heads > 1 else ''}"]
    eager = outcome.both[EAGER].times
    with_peak = any(result.peak_bytes is not None for result in outcome.both.values())
    heads = ["", "forward, ms", "forward + backward, ms", "speed-up", *(["peak memory"] if with_peak else []), "error"]
    rows = []
    for name, both in outcome.both.items():
        forward = outcome.forward[name]
        if both.times is None or forward.times is None:
            continue
        cells = [CALLED[name], table.digits(forward.times.median * 1e3), table.digits(both.times.median * 1e3)]
        cells.append(table.times(eager.median / both.times.median) if eager else "")
        cells += [table.gibibytes(both.peak_bytes)] if with_peak else []
        rows.append([*cells, table.small(outcome.errors.get(name))])
    lines.append(table.text_table(heads, rows))
    for name, both in outcome.both.items():
        reason = both.reason or outcome.forward[name].reason
        if reason:
            lines.append(f"left out: {CALLED[name]}: {reason}")
    return "\n".join(lines)
