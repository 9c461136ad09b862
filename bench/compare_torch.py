#!/usr/bin/env python3
"""Times PyTorch and isonorm on the same problems, in turns, with the same number of threads, and prints the ratio.

    python bench/compare_torch.py                       # the suite cpu
    python bench/compare_torch.py --case "layernorm x=4096x1024 dtype=bf16 pass=backward" --save record.json

Any Python with PyTorch will do. Both are timed as they are used: PyTorch allocates its results, isonorm writes into
memory that it is given. A forward pass in PyTorch is the call of `torch.nn.functional` without a graph; a backward
pass is ATen's backward function alone where the problem is a plain normalization, and autograd on a kept graph where
there is an activation, a residual or a permutation. The floor is isonorm's: the fastest copy of the bytes that must move.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

try:
    import torch

    from problems import DTYPES, Problem
except ImportError as error:
    sys.exit(f"error: {error}; run this with a Python that has PyTorch (pip install torch numpy)")

WARM_UP = 3
FEWEST_SAMPLES = 5


class Failure(Exception):
    """Something that the user can do something about."""


def read_suite(path: pathlib.Path) -> list[str]:
    """The problem strings of a suite: one a line, `#` starts a comment."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise Failure(f"cannot read the suite: {error}") from None
    stripped = (line.partition("#")[0].strip() for line in lines)
    return [line for line in stripped if line]


def build_isonorm() -> pathlib.Path:
    """Builds the command line program, optimized, and returns its path."""
    command = ["cargo", "build", "--release", "--package", "isonorm-cli", "--message-format=json-render-diagnostics"]
    try:
        built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failure(f"cannot build isonorm: {error}") from None
    messages = (json.loads(line) for line in built.stdout.splitlines() if line.startswith("{"))
    programs = [m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == "isonorm"]
    if not programs:
        raise Failure("the build made no program isonorm")
    return pathlib.Path(programs[-1])


def time_isonorm(program: pathlib.Path, case: str, options) -> dict:
    """isonorm's record of one problem."""
    command = [str(program), "bench", "--json", "--case", case, "--threads", str(options.threads)]
    command += ["--min-time", str(options.min_time)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(result.stdout)
    except subprocess.CalledProcessError as error:
        raise Failure(f"isonorm refused {case!r}: {error.stderr.strip()}") from None
    except (OSError, json.JSONDecodeError) as error:
        raise Failure(f"cannot run {program}: {error}") from None


class TorchProblem:
    """A problem's inputs, and the call that is timed."""

    def __init__(self, p: Problem):
        self.p = p
        dtype, param = DTYPES[p.dtype], DTYPES[p.param]
        if p.op == "rmsnorm":
            # PyTorch has no fused kernel for a weight of another type than x; this is its fast way.
            param = dtype
        memory = lambda: p.from_memory(torch.randn(math.prod(p.shape), dtype=torch.float32).to(dtype))
        self.x, self.dy = memory(), memory()
        self.residual = memory() if p.residual else None
        self.weight = None if p.affine == "none" else torch.randn(p.param_shape).to(param)
        self.bias = torch.randn(p.param_shape).to(param) if p.affine == "full" else None
        self.mean = self.var = None
        if p.op == "batchnorm" or p.uses_running:
            self.mean, self.var = torch.zeros(p.shape[1]).to(param), torch.ones(p.shape[1]).to(param)
        self.call = self._backward() if p.is_backward else self._forward

    def _result(self):
        p = self.p
        z = p.normalize(self.x, self.weight, self.bias, self.mean, self.var)
        return p.activate(z if self.residual is None else z + self.residual)

    def _forward(self):
        with torch.no_grad():
            return self._result()

    def _backward(self):
        p = self.p
        plain = p.act == "none" and not p.residual
        makers = {
            "batchnorm": self._batch_backward,
            "layernorm": self._layer_backward,
            "groupnorm": self._group_backward,
        }
        if plain and not p.over_channels and p.op in makers:
            return makers[p.op]()
        leaves = [t for t in (self.x, self.weight, self.bias, self.residual) if t is not None]
        for leaf in leaves:
            leaf.requires_grad_()
        y = self._result()
        return lambda: torch.autograd.grad(y, leaves, self.dy, retain_graph=True)

    def _mask(self):
        return [True, self.weight is not None, self.bias is not None]

    def _batch_backward(self):
        train, eps = not self.p.uses_running, self.p.resolved_eps
        _, mean, rstd = torch.ops.aten.native_batch_norm(
            self.x, self.weight, self.bias, self.mean, self.var, train, 0.1, eps
        )
        return lambda: torch.ops.aten.native_batch_norm_backward(
            self.dy, self.x, self.weight, self.mean, self.var, mean, rstd, train, eps, self._mask()
        )

    def _layer_backward(self):
        shape = self.p.param_shape
        _, mean, rstd = torch.ops.aten.native_layer_norm(self.x, shape, self.weight, self.bias, self.p.resolved_eps)
        return lambda: torch.ops.aten.native_layer_norm_backward(
            self.dy, self.x, shape, mean, rstd, self.weight, self.bias, self._mask()
        )

    def _group_backward(self):
        n, c, *spatial = self.p.shape
        sizes = (n, c, math.prod(spatial), self.p.groups)
        _, mean, rstd = torch.ops.aten.native_group_norm(self.x, self.weight, self.bias, *sizes, self.p.resolved_eps)
        return lambda: torch.ops.aten.native_group_norm_backward(
            self.dy, self.x, mean, rstd, self.weight, *sizes, self._mask()
        )

    def time(self, min_time: float) -> float:
        """The median of the seconds of a call."""
        for _ in range(WARM_UP):
            self.call()
        times: list[float] = []
        start = time.perf_counter()
        while len(times) < FEWEST_SAMPLES or time.perf_counter() - start < min_time:
            begun = time.perf_counter()
            self.call()
            times.append(time.perf_counter() - begun)
        return statistics.median(times)


def compare(program: pathlib.Path, case: str, options) -> dict:
    """One row: the medians over the rounds, in which the two take turns."""
    try:
        problem = TorchProblem(Problem.parse(case))
    except ValueError as error:
        raise Failure(str(error)) from None
    isonorm, floors, torch_times = [], [], []
    for _ in range(options.rounds):
        record = time_isonorm(program, case, options)
        isonorm.append(record["rows"][0]["median_s"])
        floors.append(record["rows"][0]["floor_s"])
        torch_times.append(problem.time(options.min_time))
    row = {"case": record["rows"][0]["case"], "plan": record["rows"][0]["plan"]}
    row |= {"isonorm_s": statistics.median(isonorm), "torch_s": statistics.median(torch_times)}
    row |= {"floor_s": statistics.median(floors)}
    row |= {"ratio": row["isonorm_s"] / row["floor_s"], "speedup": row["torch_s"] / row["isonorm_s"]}
    options.versions["isonorm"] = record["versions"]["isonorm"]
    return row


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def print_row(row: dict, width: int) -> None:
    times = "".join(f"{row[key] * 1e3:>10.3f}" for key in ("isonorm_s", "torch_s", "floor_s"))
    print(f"{row['case']:<{width}}{times}{row['ratio']:>8.2f}{row['speedup']:>8.2f}x", flush=True)


def print_summary(rows: list[dict]) -> None:
    speedups = [row["speedup"] for row in rows]
    slower = sum(s < 1 for s in speedups)
    print(
        f"\n{len(rows)} cases: isonorm is {geometric_mean(speedups):.2f} times as fast as PyTorch in the geometric "
        f"mean (least {min(speedups):.2f}, most {max(speedups):.2f}); slower in {slower}; "
        f"{geometric_mean([row['ratio'] for row in rows]):.2f} times the floor"
    )


def print_table(path: str) -> None:
    """A record as a Markdown table: one row an op and layout, the geometric means of speed-up and ratio to the floor."""
    record = json.loads(pathlib.Path(path).read_text())
    columns = [(dtype, backward) for dtype in ("f32", "bf16") for backward in (False, True)]
    groups: dict[str, dict[tuple[str, bool], list[dict]]] = {}
    for row in record["rows"]:
        words = dict(word.split("=", 1) for word in row["case"].split()[1:])
        layout = {"nhwc": ", channels last"}.get(words.get("layout", ""), "")
        over = " over channels" if words.get("over") == "channels" else ""
        fused = "+ReLU" if words.get("act") == "relu" else ""
        fused += "+residual" if "residual" in words else ""
        evaluation = " (evaluation)" if words["pass"] == "eval" else ""
        name = f"{row['case'].split()[0]}{fused}{over}{layout}{evaluation}"
        key = (words["dtype"], words["pass"] == "backward")
        groups.setdefault(name, {}).setdefault(key, []).append(row)
    heads = [f"{dtype} {'backward' if backward else 'forward'}" for dtype, backward in columns]
    print("| | " + " | ".join(heads) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for name, cells in groups.items():
        means = []
        for column in columns:
            rows = cells.get(column, [])
            speedup, ratio = (geometric_mean([row[key] for row in rows]) if rows else 0 for key in ("speedup", "ratio"))
            means.append(f"{speedup:.2f}× ({ratio:.2f})" if rows else "")
        print(f"| {name} | " + " | ".join(means) + " |")
    print_summary(record["rows"])


def cpu_model() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def save(path: str, rows: list[dict], options) -> None:
    """Writes the rows with what made them."""
    record = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_model(), "cores": os.cpu_count(), "os": f"{platform.system()} {platform.machine()}"},
        "versions": options.versions,
        "settings": {"threads": options.threads, "rounds": options.rounds, "min_time_s": options.min_time},
        "geometric_mean_speedup": geometric_mean([row["speedup"] for row in rows]),
        "rows": rows,
    }
    pathlib.Path(path).write_text(json.dumps(record, indent=2) + "\n")


def arguments() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="Times are medians, in milliseconds.")
    add = parser.add_argument
    add("--suite", type=pathlib.Path, metavar="FILE", help="problems, one a line (default bench/suites/cpu.txt)")
    add("--case", action="append", default=[], metavar="PROBLEM", help="one problem; may be repeated")
    add("--threads", type=int, default=cores, metavar="N", help="of each (default %(default)s)")
    add("--rounds", type=int, default=3, metavar="N", help="turns of the two at a problem (default %(default)s)")
    add("--min-time", type=float, default=0.3, metavar="SECONDS", help="of a turn (default %(default)s)")
    add("--isonorm", type=pathlib.Path, metavar="PROGRAM", help="use this instead of building it")
    add("--save", metavar="FILE", help="write a record (JSON)")
    add("--table", metavar="FILE", help="print a record as a Markdown table, and measure nothing")
    options = parser.parse_args()
    if options.threads < 1 or options.rounds < 1 or not options.min_time >= 0:
        parser.error("--threads and --rounds are at least 1, --min-time at least 0")
    options.versions = {"torch": torch.__version__, "python": platform.python_version()}
    return options


def run(options: argparse.Namespace) -> None:
    cases = list(options.case)
    if options.suite or not cases:
        cases = read_suite(options.suite or ROOT / "bench/suites/cpu.txt") + cases
    if not cases:
        raise Failure("there are no cases to compare")
    program = options.isonorm or build_isonorm()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    warnings.filterwarnings("ignore", message="Mismatch dtype")

    print(f"{cpu_model()}, {options.threads} threads, PyTorch {torch.__version__}; milliseconds")
    width = max(map(len, cases)) + 12
    print(f"{'case':<{width}}{'isonorm':>10}{'torch':>10}{'floor':>10}{'/floor':>8}{'speedup':>9}")
    rows = []
    for case in cases:
        rows.append(compare(program, case, options))
        print_row(rows[-1], width)
    print_summary(rows)
    if options.save:
        save(options.save, rows, options)


def main() -> int:
    try:
        options = arguments()
        if options.table:
            print_table(options.table)
        else:
            run(options)
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
