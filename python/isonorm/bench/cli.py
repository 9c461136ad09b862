"""The command line of `python -m isonorm.bench`."""

from __future__ import annotations

import argparse
import sys
from typing import List, Optional

from .cases import Failure

EPILOG = """\
parts:
  layers    single layers, forward and backward, beside PyTorch, torch.compile, Liger-Kernel, quack and apex where they
            are installed, and beside a copy of the same bytes; outputs and gradients are held against float64 first
  overhead  what a module's call costs the host, on tiny tensors
  step      a training step of ResNet-50, before and after isonorm.torch.convert
  block     blocks of a GPT with LayerNorm and RMSNorm, with the residual stream in isonorm's kernels
  all       all of them, in this order

examples:
  python -m isonorm.bench --quick
  python -m isonorm.bench layers --case "layernorm x=8192x4096 dtype=bf16" --save record.json
  python -m isonorm.bench step --batch 128 --compile --without-norms

Exit code 1 says that isonorm's results are not right, 2 that something is not as asked. Progress goes to the standard
error.
"""
PARTS = ("layers", "overhead", "step", "block")
# Which part an option is of, by its name in the parsed options.
PART_OF = {
    "case": "layers",
    "peers": "layers",
    "min_time": "layers",
    "batch": "step",
    "image": "step",
    "dtypes": "step",
    "without_norms": "step",
    "block_batch": "block",
    "length": "block",
    "width": "block",
    "layers": "block",
    "block_dtype": "block",
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m isonorm.bench",
        description="isonorm beside PyTorch and others, measured on this machine.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "part", nargs="?", choices=[*PARTS, "all"], default="all", help="what is measured (default %(default)s)"
    )
    made.add_argument("--device", default="auto", help="cpu, cuda or cuda:N (default: a GPU where there is one)")
    made.add_argument(
        "--quick", action="store_true", help="fewer cases, smaller sizes, less time: a look, not a measurement"
    )
    made.add_argument("--threads", type=_positive, metavar="N", help="threads of the CPU (default: PyTorch's)")
    made.add_argument("--save", metavar="FILE", help="write a record (JSON), which `isonorm bench` reads")
    add = made.add_argument_group("layers").add_argument
    add("--case", action="append", metavar="PROBLEM", help="one problem; may be repeated (default: a list)")
    add(
        "--peers",
        metavar="NAMES",
        help="of torch,native,compile,liger,quack,apex (default all that are there; on a CPU with --quick torch)",
    )
    add("--min-time", type=_seconds, metavar="SECONDS", help="of each at a case (default 0.2; with --quick 0.02)")
    add = made.add_argument_group("step").add_argument
    add("--batch", type=_positive, metavar="N", help="images of a step (default 256, on a CPU 4)")
    add("--image", type=_positive, metavar="N", help="height and width of an image (default 224, on a CPU 64)")
    add("--dtypes", metavar="NAMES", help="of bf16,f32 (default both)")
    add(
        "--without-norms",
        action="store_true",
        default=None,
        help="time the network without any norm, too: the share of norms",
    )
    add = made.add_argument_group("block").add_argument
    add("--block-batch", type=_positive, metavar="N", help="sequences (default 8, on a CPU 2)")
    add("--length", type=_positive, metavar="N", help="of a sequence (default 1024, on a CPU 128)")
    add("--width", type=_positive, metavar="N", help="of the model (default 2048, on a CPU 256)")
    add("--layers", type=_positive, metavar="N", help="blocks (default 4, on a CPU 2)")
    add("--block-dtype", choices=["bf16", "f16", "f32"], help="default bf16, on a CPU f32")
    add = made.add_argument_group("step and block").add_argument
    add("--compile", action="store_true", default=None, help="torch.compile, too (block: the default on a GPU)")
    add("--no-compile", action="store_false", dest="compile", help="no torch.compile")
    return made


def _positive(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def _check_parts(options: argparse.Namespace) -> None:
    """An option of another part is a mistake."""
    for name, part in PART_OF.items():
        if getattr(options, name) is not None and options.part not in (part, "all"):
            raise Failure(f"--{name.replace('_', '-')} is for {part}, not for {options.part}")
    if options.compile is not None and options.part not in ("step", "block", "all"):
        raise Failure("--compile and --no-compile are for step and block; layers has --peers")


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs the command line and returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        _check_parts(options)
        try:
            from . import run
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise Failure("isonorm.bench needs PyTorch (pip install torch)") from None
        return run.run(options, PARTS if options.part == "all" else (options.part,))
    except (Failure, MemoryError, OSError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
