#!/usr/bin/env python3
"""Runs PyTorch on random normalization problems and writes what it computed, for a comparison with isonorm.

    python scripts/torch_reference.py cases.safetensors --cases 600 --seed 1 [--device cuda]

For each case the file holds the inputs, PyTorch's outputs (`torch.y`, `torch.dx`, …), PyTorch's outputs in f64 from
the same inputs (`exact.y`, …) and how far the types allow a result to be from those (`bound.y`, …; see tolerances.py).
All tensors lie flat, in memory order. The metadata's `cases` is a JSON list with each case's problem string.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings

import numpy as np
import torch

import safetensors_file
from problems import DTYPES, Problem
from random_problems import Case, random_case
from tolerances import Exact

INPUTS = ("weight", "bias", "residual", "running_mean", "running_var")


def make_inputs(case: Case, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    """Random inputs in their types. `x` holds the batches back to back."""
    p = case.problem
    dtype, param = DTYPES[p.dtype], DTYPES[p.param]
    elements = int(np.prod(p.shape))

    def normal(n, scale=1.0, shift=0.0, dtype=dtype):
        return torch.from_numpy(rng.normal(shift, scale, n)).to(dtype)

    inputs = {"x": normal(elements * case.batches, case.std, case.std * case.mean_over_std), "dy": normal(elements)}
    if p.affine != "none":
        inputs["weight"] = normal(p.param_shape, 0.5, 1.0, param)
    if p.affine == "full":
        inputs["bias"] = normal(p.param_shape, 0.5, 0.0, param)
    if p.residual:
        inputs["residual"] = normal(elements)
    if p.uses_running or case.updates_running:
        channels = p.shape[1]
        inputs["running_mean"] = normal(channels, case.std, case.std * case.mean_over_std, param)
        inputs["running_var"] = torch.from_numpy(rng.uniform(0.5, 2.0, channels) * case.std**2).to(param)
    return inputs


def run(
    case: Case, inputs: dict[str, torch.Tensor], dtype: torch.dtype | None, device: str = "cpu"
) -> dict[str, torch.Tensor]:
    """PyTorch's results on these inputs: in their own types and layout, or all in `dtype`."""
    p = case.problem

    def tensor(flat):
        t = p.from_memory(flat)
        # PyTorch's GroupNorm of channels_last takes E[x²] − E[x]², so the exact results come from contiguous tensors.
        return t if dtype is None else t.reshape(-1).view(p.shape)

    own = {name: t.to(device, dtype or t.dtype, copy=True) for name, t in inputs.items()}
    weight, bias, residual, mean, var = (own.get(name) for name in INPUTS)
    # The default eps is PyTorch's own when it runs in its own types, and that number in f64.
    eps = None if dtype is None else p.resolved_eps
    batches = [tensor(flat) for flat in own["x"].chunk(case.batches)]
    for step in range(case.steps - 1):
        with torch.no_grad():
            p.normalize(batches[step % case.batches], None, None, mean, var, case.factor(step), eps)
    x = batches[(case.steps - 1) % case.batches].detach().requires_grad_()
    skip = None if residual is None else tensor(residual).detach().requires_grad_()
    leaves = {"dx": x, "dweight": weight, "dbias": bias, "dresidual": skip}
    leaves = {name: leaf.requires_grad_() for name, leaf in leaves.items() if leaf is not None}

    z = p.normalize(x, weight, bias, mean, var, case.factor(case.steps - 1), eps)
    y = p.activate(z if skip is None else z + skip)
    # PyTorch 2.15 misreads a channels_last gradient of instance_norm when the batch is one; its own outputs, and so the
    # gradients it usually meets, are contiguous.
    dy = tensor(own["dy"])
    gradients = torch.autograd.grad(y, list(leaves.values()), dy.contiguous() if p.op == "instancenorm" else dy)
    results = dict(zip(leaves, gradients)) | {"y": y.detach()}
    if case.updates_running:
        results |= {"running_mean": mean, "running_var": var}
    return {name: result.cpu() for name, result in results.items()}


def exact_values(case: Case, inputs) -> Exact:
    """The intermediate values of the last step, in f64."""
    p = case.problem
    wide = {name: t.double() for name, t in inputs.items()}
    x = p.from_memory(wide["x"].chunk(case.batches)[(case.steps - 1) % case.batches])
    residual = p.from_memory(wide["residual"]) if p.residual else None
    weight, bias, _, mean, var = (wide.get(name) for name in INPUTS)
    return Exact(p, x, weight, bias, residual, mean, var)


def bounds(case: Case, inputs, exact: Exact, results) -> dict[str, torch.Tensor]:
    """How far each result may be from the exact one."""
    p = case.problem
    z = exact.z.detach().requires_grad_()
    (slope,) = torch.autograd.grad(p.activate(z).sum(), z)
    dy = p.from_memory(inputs["dy"].double())
    found = exact.gradient_bounds(dy, slope, results["dx"], results.get("dweight"), results.get("dbias"))
    found["y"] = exact.y_bound(results["y"])
    if case.updates_running:
        old = inputs["running_mean"].double(), inputs["running_var"].double()
        now = results["running_mean"], results["running_var"]
        found["running_mean"], found["running_var"] = exact.running_bounds(*now, *old, case.momentum, case.steps)
    return {name: bound for name, bound in found.items() if bound is not None}


def evaluate(case: Case, rng: np.random.Generator, device: str) -> dict[str, torch.Tensor]:
    """Everything that is written for one case, flat and in memory order."""
    p = case.problem
    inputs = make_inputs(case, rng)
    exact = exact_values(case, inputs)
    # On a kink of the activation the gradient jumps, and rounding decides which side is taken: no gradient from there.
    inputs["dy"][p.to_memory(exact.near_kink())] = 0
    wide = run(case, inputs, torch.float64)
    found = {"torch": run(case, inputs, None, device), "exact": wide, "bound": bounds(case, inputs, exact, wide)}

    tensors = dict(inputs)
    for kind, results in found.items():
        for name, tensor in results.items():
            tensor = tensor.double() if kind == "bound" else tensor
            whole = name in ("y", "dx", "dresidual")
            tensors[f"{kind}.{name}"] = p.to_memory(tensor) if whole else tensor.contiguous().flatten()
    return {name: tensor.detach().flatten() for name, tensor in tensors.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", help="the .safetensors file to write")
    parser.add_argument("--cases", type=int, default=600, help="how many random cases (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="what they are drawn from (default %(default)s)")
    parser.add_argument("--case", metavar="PROBLEM", help="this problem alone")
    parser.add_argument("--device", default="cpu", help="where PyTorch works in its own types (default %(default)s)")
    options = parser.parse_args()

    # Mixed types send PyTorch to its slower kernels, of which it warns; the values are what is wanted here.
    warnings.filterwarnings("ignore", message="Mismatch dtype")
    rng = np.random.default_rng(options.seed)
    try:
        named = [Problem.parse(options.case).forward] if options.case else []
    except ValueError as error:
        parser.error(str(error))
    cases = [Case(problem) for problem in named] or [random_case(rng) for _ in range(options.cases)]
    tensors: dict[str, torch.Tensor] = {}
    records = []
    refused = 0
    for case in cases:
        try:
            found = evaluate(case, rng, options.device)
        except RuntimeError:
            # Its GPU kernels do less: none but BatchNorm's take parameters in f32 beside data in 16 bits.
            if options.device == "cpu":
                raise
            refused += 1
            continue
        tensors |= {f"{len(records)}.{name}": tensor for name, tensor in found.items()}
        records.append(case.record())
    metadata = {"cases": json.dumps(records), "torch": torch.__version__}
    size = safetensors_file.write(options.output, tensors, metadata)
    without = f", {refused} left out that it refuses" if refused else ""
    on = "" if options.device == "cpu" else f" on {torch.cuda.get_device_name()}"
    print(f"PyTorch {torch.__version__}{on}: {len(records)} cases{without}, seed {options.seed}, {size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
