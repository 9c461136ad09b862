#!/usr/bin/env python3
"""Folds random PyTorch layers and their norms with `isonorm fold`, and compares what PyTorch computes before and after.

    python scripts/torch_fold.py target/release/isonorm

Convolutions and transposed convolutions of one to three dimensions, with and without groups, bias and affine
parameters, and linear layers before a BatchNorm; linear layers after a LayerNorm, an RMSNorm or a BatchNorm. One state
dict for each type of the weights. Both ways run in f64 on the stored numbers, so that what is left is the rounding of
the folded ones: `u·(Σ|w'·x| + |b'|)` with u half the type's epsilon, and half a subnormal for each product.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

import safetensors_file

CONVS = {False: (nn.Conv1d, nn.Conv2d, nn.Conv3d), True: (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)}
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
EPS = 1e-4
INPUTS, OUTPUTS, SIZE = 6, 4, 7
# f64's own rounding of sums as long as these, before and after.
NOISE = 1e-13


def pairs() -> dict[str, nn.Sequential]:
    """Modules of two steps by name; the name's first part says what the command line has to say about them."""
    made = {}
    booleans = (False, True)
    for spatial, transposed, groups, bias, affine in itertools.product((1, 2, 3), booleans, (1, 2), booleans, booleans):
        dilation = {} if transposed else {"dilation": 2}
        conv = CONVS[transposed][spatial - 1](
            INPUTS, OUTPUTS, 3, stride=2, padding=1, groups=groups, bias=bias, **dilation
        )
        norm = BATCH_NORMS[spatial - 1](OUTPUTS, eps=EPS, affine=affine)
        kind = f"transposed{groups}" if transposed else "conv"
        made[f"{kind}.{len(made)}"] = nn.Sequential(conv, norm)
    for bias in booleans:
        made[f"linear.{len(made)}"] = nn.Sequential(
            nn.Linear(INPUTS, OUTPUTS, bias=bias), nn.BatchNorm1d(OUTPUTS, eps=EPS)
        )
        for norm in (nn.LayerNorm(INPUTS), nn.RMSNorm(INPUTS), nn.BatchNorm1d(INPUTS, eps=EPS)):
            made[f"after.{len(made)}"] = nn.Sequential(norm, nn.Linear(INPUTS, OUTPUTS, bias=bias))
    return made


def randomize(pair: nn.Sequential, dtype: torch.dtype) -> None:
    """Statistics and parameters as training leaves them, rounded to the type."""
    for module in pair:
        if getattr(module, "running_mean", None) is not None:
            module.running_mean.normal_(0.0, 0.5)
            module.running_var.uniform_(0.3, 3.0)
        for parameter in module.parameters():
            nn.init.normal_(parameter, 0.3, 0.5)
    pair.to(dtype).eval()


def read(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a .safetensors file, in f64."""
    types = {name: dtype for dtype, name in safetensors_file.NAMES.items()}
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)

    def tensor(info):
        begin, end = (8 + length + offset for offset in info["data_offsets"])
        return torch.frombuffer(bytearray(data[begin:end]), dtype=types[info["dtype"]]).reshape(info["shape"]).double()

    return {name: tensor(info) for name, info in header.items()}


def fold(isonorm: str, folder: Path, made: dict[str, nn.Sequential]) -> dict[str, torch.Tensor]:
    """The state dict after `isonorm fold`."""
    state = {
        f"{name}.{key}": value
        for name, pair in made.items()
        for key, value in pair.state_dict().items()
        if value.is_floating_point()
    }
    source, target = folder / "model.safetensors", folder / "folded.safetensors"
    safetensors_file.write(source, state, {"format": "pt"})
    options = ["--eps", str(EPS), "--groups", "transposed1.*.0=1", "--groups", "transposed2.*.0=2"]
    options += ["--map", "after.*.0=after.*.1"]
    run = subprocess.run([isonorm, "fold", source, "-o", target, "--json", *options], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"isonorm fold: exit code {run.returncode}\n{run.stderr}{run.stdout}")
    report = json.loads(run.stdout)
    if len(report["folded"]) != len(made) or report["left_alone"]:
        sys.exit(f"isonorm fold: {len(report['folded'])} of {len(made)} pairs folded, left: {report['left_alone']}")
    return read(target)


def folded_pair(name: str, pair: nn.Sequential, state: dict[str, torch.Tensor]) -> tuple[nn.Module, nn.Module]:
    """What comes before the folded layer now, and the layer."""
    first, second = copy.deepcopy(pair)
    into_next = name.startswith("after")
    layer, norm, at = (second, first, 1) if into_next else (first, second, 0)
    layer.weight = nn.Parameter(state[f"{name}.{at}.weight"])
    bias = state.get(f"{name}.{at}.bias")
    layer.bias = None if bias is None else nn.Parameter(bias)
    if f"{name}.{1 - at}.weight" not in state:
        return nn.Identity(), layer
    norm.load_state_dict({key: state[f"{name}.{1 - at}.{key}"] for key in norm.state_dict()})
    return norm, layer


def worst(name: str, pair: nn.Sequential, state: dict[str, torch.Tensor], dtype: torch.dtype) -> float:
    """The largest difference, relative to what rounding allows."""
    pair = pair.double()
    linear = name.startswith(("linear", "after"))
    spatial = 0 if linear else pair[0].weight.dim() - 2
    x = torch.rand(2, INPUTS, *[SIZE] * spatial, dtype=torch.float64) * 2 - 1
    before, layer = folded_pair(name, pair, state)
    expected, x = pair(x), before(x)
    got = layer(x)

    magnitudes = copy.deepcopy(layer)
    for parameter in magnitudes.parameters():
        parameter.abs_()
    info = torch.finfo(dtype)
    sums = magnitudes(x.abs())
    # The noise counts from the norm's own magnitudes, which are within a small factor of those of the result.
    allowed = 0.5 * info.eps * sums + 0.5 * info.smallest_normal * info.eps * x.abs().sum() + NOISE * (1.0 + sums)
    return ((got - expected).abs() / allowed).max().item()


@torch.no_grad()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("isonorm", help="the program")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    failed = 0
    for dtype in safetensors_file.NAMES:
        made = pairs()
        for pair in made.values():
            randomize(pair, dtype)
        with tempfile.TemporaryDirectory() as folder:
            state = fold(arguments.isonorm, Path(folder), made)
        ratios = {name: worst(name, pair, state, dtype) for name, pair in made.items()}
        failures = [f"{name}: {ratio:.3g}" for name, ratio in ratios.items() if not ratio <= 1.0]
        failed += len(failures)
        kind = safetensors_file.NAMES[dtype]
        print(f"fold {kind}: {len(made)} pairs, largest difference {max(ratios.values()):.2f} of what rounding allows")
        print("".join(f"  {failure}\n" for failure in failures), end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
