"""Random normalization problems: every op, layout, type, mode, affine and activation, small and awkward shapes."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from problems import OPS, Problem

RELUS = ("relu", "leaky_relu", "leaky_relu:0.2")
ACTIVATIONS = (*RELUS, "none", "silu", "gelu", "gelu_tanh", "sigmoid", "tanh", "hardswish")
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 31, 32, 33, 64, 96, 130)
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32)
ROWS = (1, 2, 3, 7, 8, 15, 16, 31, 33, 64, 100, 127, 128, 129, 255, 256, 500, 768, 1000, 1024, 2049, 4096)
BATCHES = (1, 2, 3, 4, 5, 8)
MAX_ELEMENTS = 24_000

# mean/std of the data, by type: beyond these the type itself holds no spread any more.
MEANS = {
    "f16": (0, 0, 0, 1, 30),
    "bf16": (0, 0, 0, 1, 10),
    "f32": (0, 0, 0, 10, 1e3, 1e6),
    "f64": (0, 0, 0, 10, 1e3, 1e6),
}
# Standard deviations; f16 has no room for others.
STDS = {"f16": (1,), "bf16": (1, 1e-2, 1e2), "f32": (1, 1e-3, 1e3), "f64": (1, 1e-3, 1e3)}
LONG_RUN = 1000


@dataclasses.dataclass(frozen=True)
class Case:
    """A problem, its data and its running statistics."""

    problem: Problem
    mean_over_std: float = 0.0
    std: float = 1.0
    updates_running: bool = False
    momentum: float | None = 0.1
    steps: int = 1
    batches: int = 1

    def factor(self, step: int) -> float:
        """How much of the running statistics a step replaces; a cumulative average without a momentum."""
        return 1 / (step + 1) if self.momentum is None else self.momentum

    def record(self) -> dict[str, object]:
        """What the file says about this case."""
        record = dataclasses.asdict(self)
        return record | {"problem": str(self.problem)}


def _pick(rng: np.random.Generator, choices):
    return choices[int(rng.integers(len(choices)))]


def _shape(rng: np.random.Generator, op: str, over_channels: bool) -> tuple[int, ...]:
    """A shape that is not too large."""
    while True:
        if op in ("layernorm", "rmsnorm") and not over_channels:
            shape = (*(_pick(rng, SIZES) for _ in range(int(rng.integers(0, 3)))), _pick(rng, ROWS))
        else:
            least = 1 if op == "instancenorm" else 0
            spatial = tuple(_pick(rng, SIZES) for _ in range(int(rng.integers(least, 4))))
            shape = (_pick(rng, BATCHES), _pick(rng, CHANNELS), *spatial)
        if math.prod(shape) <= MAX_ELEMENTS:
            return shape


def _problem(rng: np.random.Generator) -> Problem:
    op = _pick(rng, OPS)
    over_channels = op in ("layernorm", "rmsnorm") and rng.random() < 0.35
    shape = _shape(rng, op, over_channels)
    rows = op in ("layernorm", "rmsnorm") and not over_channels
    dtype = _pick(rng, ("f32", "f32", "f64", "bf16", "f16"))
    wide = "f64" if dtype == "f64" else "f32"
    affines = ("none", "weight", "weight") if op == "rmsnorm" else ("none", "weight", "full", "full")
    return Problem(
        op=op,
        shape=shape,
        dims=int(rng.integers(1, len(shape) + 1)) if rows else 1,
        over_channels=over_channels,
        groups=_pick(rng, [g for g in range(1, shape[1] + 1) if shape[1] % g == 0]) if op == "groupnorm" else 0,
        channels_last=not rows and len(shape) > 2 and rng.random() < 0.5,
        dtype=dtype,
        param=_pick(rng, (wide, wide, dtype)),
        affine=_pick(rng, affines),
        act=_pick(rng, ACTIVATIONS) if rng.random() < 0.6 else "none",
        residual="add" if rng.random() < 0.3 else "",
        mode=_pick(rng, ("train", "train", "eval")),
        eps=_pick(rng, (None, None, 1e-5, 1e-3)),
    )


def random_case(rng: np.random.Generator) -> Case:
    """A case that PyTorch accepts: more than one value a group where it asks for that."""
    problem = _problem(rng)
    while problem.group_size < 2 and (problem.op == "groupnorm" or (problem.has_running and problem.mode == "train")):
        problem = _problem(rng)
    mean, std = _pick(rng, MEANS[problem.dtype]), _pick(rng, STDS[problem.dtype])
    case = Case(problem, mean_over_std=float(mean), std=float(std))
    if problem.has_running and problem.mode == "train" and rng.random() < 0.7:
        case = dataclasses.replace(case, updates_running=True, momentum=_pick(rng, (0.1, 0.1, 0.01, 1.0, 0.0, None)))
        # Long runs accumulate rounding: only where the parameters' type can hold small steps.
        if math.prod(problem.shape) <= 2000 and problem.param in ("f32", "f64") and rng.random() < 0.25:
            case = dataclasses.replace(case, steps=LONG_RUN, batches=4)
    return case
