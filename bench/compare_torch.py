#!/usr/bin/env python3
"""Times PyTorch and isonorm on the same problems, in turns, with the same number of threads, and prints the ratio.

    python bench/compare_torch.py                       # the suite cpu
    python bench/compare_torch.py --case "layernorm x=4096x1024 dtype=bf16 pass=backward" --save record.json

Any Python with PyTorch will do. With --device cuda all work on the first GPU, and what `torch.compile` makes of the formula is
timed as well, and Liger-Kernel where it is installed and has a function for the problem; speed-ups are over the fastest of
these peers. All are timed as they are used: the peers allocate their results, isonorm writes into memory that it is given. A
forward pass in PyTorch is the call of `torch.nn.functional` without a graph; a backward pass is ATen's backward function alone
where the problem is a plain normalization, and autograd on a kept graph where there is an activation, a residual or a
permutation, as it is for the other peers. The floor is isonorm's: the fastest copy of the bytes that must move. On a GPU, calls
are replayed as graphs that go through more tensors than the cache holds.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
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

    import liger_problem
    from problems import Problem
    from torch_problem import GpuProblem, TorchProblem, compiled

    MISSING = None
except ImportError as error:
    # A record's table needs none of them.
    MISSING = f"{error}; run this with a Python that has PyTorch (pip install torch numpy)"

# The version of the JSON that bench/records/README.md documents.
SCHEMA = 2
# Names in a record: what they are called, and the head of their column.
PEERS = {"torch": ("PyTorch", "torch"), "compile": ("torch.compile", "compiled"), "liger": ("Liger", "liger")}


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
    command = [str(program), "bench", "--json", "--case", case, "--device", options.device]
    command += ["--threads", str(options.threads)] if options.device == "cpu" else []
    command += ["--min-time", str(options.min_time)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(result.stdout)
    except subprocess.CalledProcessError as error:
        raise Failure(f"isonorm refused {case!r}: {error.stderr.strip()}") from None
    except (OSError, json.JSONDecodeError) as error:
        raise Failure(f"cannot run {program}: {error}") from None


def peer_problems(case: str, bytes_moved: int, options) -> dict:
    """The peers' ways to carry a problem out, by their names in a record."""
    p = Problem.parse(case)
    if options.device == "cpu":
        return {"torch": TorchProblem(p)}
    peers = {"torch": GpuProblem(p, bytes_moved), "compile": GpuProblem(p, bytes_moved, compiled(p))}
    if "liger" in options.peers:
        try:
            liger = GpuProblem(p, bytes_moved, liger_problem.formula(p))
            liger.time(0)  # What cannot be replayed is found here, not in a turn.
            peers["liger"] = liger
        except Exception as error:  # Whatever it is, the others go on.
            say_left_out(f"{case}: Liger", error)
    return peers


def say_left_out(what: str, error: Exception) -> None:
    """One line on the standard error."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    print(f"{what} is left out: {reason}", file=sys.stderr, flush=True)


def compare(program: pathlib.Path, case: str, options) -> dict | None:
    """One row: the medians over the rounds, in which all take turns. None where there is no kernel."""
    times: dict[str, list[float]] = {"isonorm": [], "floor": []}
    peers = None
    for _ in range(options.rounds):
        record = time_isonorm(program, case, options)
        if not record["rows"]:
            return None
        measured = record["rows"][0]
        times["isonorm"].append(measured["median_s"])
        times["floor"].append(measured["floor_s"])
        if peers is None:
            try:
                peers = peer_problems(case, measured["bytes"], options)
            except ValueError as error:
                raise Failure(str(error)) from None
        for name, peer in peers.items():
            times.setdefault(name, []).append(peer.time(options.min_time))
    options.measured = record
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    return {
        "case": measured["case"],
        "plan": measured["plan"],
        "median_s": medians["isonorm"],
        "floor_s": medians["floor"],
        "floor": measured["floor"],
        "ratio": medians["isonorm"] / medians["floor"],
        "bytes": measured["bytes"],
        "gbps": measured["bytes"] / medians["isonorm"] / 1e9,
        "peers": {name: {"median_s": medians[name]} for name in peers},
    }


def speedup(row: dict) -> float:
    """The fastest peer's time over isonorm's."""
    return min(peer["median_s"] for peer in row["peers"].values()) / row["median_s"]


def times_of(row: dict, peers: list[str]) -> list[float | None]:
    """Seconds of isonorm, of these peers and of the floor."""
    return [row["median_s"], *(row["peers"].get(name, {}).get("median_s") for name in peers), row["floor_s"]]


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def print_head(width: int, options) -> None:
    where = torch.cuda.get_device_name() if options.device != "cpu" else f"{cpu_model()}, {options.threads} threads"
    liger = f", Liger {options.versions['liger']}" if "liger" in options.versions else ""
    print(f"{where}, PyTorch {torch.__version__}{liger}; {options.unit[0]}")
    heads = "".join(f"{head:>10}" for head in ("isonorm", *(PEERS[name][1] for name in options.peers), "floor"))
    print(f"{'case':<{width}}{heads}{'/floor':>8}{'speedup':>9}")


def print_row(row: dict, width: int, options) -> None:
    cells = ("" if t is None else f"{t * options.unit[1]:.3f}" for t in times_of(row, options.peers))
    times = "".join(f"{cell:>10}" for cell in cells)
    print(f"{row['case']:<{width}}{times}{row['ratio']:>8.2f}{speedup(row):>8.2f}x", flush=True)


def measured_peers(rows: list[dict]) -> list[str]:
    """The peers that any of the cases were measured with."""
    return [name for name in PEERS if any(name in row["peers"] for row in rows)]


def print_summary(rows: list[dict]) -> None:
    speedups = [speedup(row) for row in rows]
    slower = sum(s < 1 for s in speedups)
    peers = measured_peers(rows)
    print(
        f"\n{len(rows)} cases: isonorm is {geometric_mean(speedups):.2f} times as fast as "
        f"{'PyTorch' if len(peers) == 1 else 'the fastest peer'} in the geometric "
        f"mean (least {min(speedups):.2f}, most {max(speedups):.2f}); slower in {slower}; "
        f"{geometric_mean([row['ratio'] for row in rows]):.2f} times the floor"
    )
    for name in peers if len(peers) > 1 else []:
        over = [row["peers"][name]["median_s"] / row["median_s"] for row in rows if name in row["peers"]]
        print(f"  {geometric_mean(over):.2f} times as fast as {PEERS[name][0]}, over {len(over)} cases")


def print_table(path: str) -> None:
    """A record as a Markdown table."""
    rows, is_gpu = read_record(path)
    (print_gpu_table if is_gpu else print_cpu_table)(rows)
    print_summary(rows)


def read_record(path: str) -> tuple[list[dict], bool]:
    """The rows of a record that peers were measured in, and whether it is of a GPU."""
    try:
        record = json.loads(pathlib.Path(path).read_text())
        if (schema := record["schema"]) != SCHEMA:
            raise Failure(f"{path}: schema {schema}, expected {SCHEMA}")
        rows = [row for row in record["rows"] if row.get("peers")]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise Failure(f"{path} is no record: {type(error).__name__}: {error}") from None
    if not rows:
        raise Failure(f"{path}: no peer was measured there")
    return rows, "gpu" in record


def print_gpu_table(rows: list[dict]) -> None:
    """One row a case: microseconds."""
    labels = {"compile": "`torch.compile`"}
    peers = measured_peers(rows)
    heads = ["", "isonorm", *(labels.get(name, PEERS[name][0]) for name in peers), "copy"]
    print("| " + " | ".join(heads).strip() + " |")
    print("|---" * len(heads) + "|")
    defaults = {"dtype=f32", "param=f32", "pass=train", "layout=nchw"}
    for row in rows:
        name = " ".join(word for word in row["case"].split() if word not in defaults)
        times = [None if t is None else t * 1e6 for t in times_of(row, peers)]
        cells = " | ".join("" if t is None else f"{t:.1f}" if t < 100 else f"{t:.0f}" for t in times)
        print(f"| `{name}` | {cells} |")


def print_cpu_table(rows: list[dict]) -> None:
    """One row an op and layout: the geometric means of speed-up and ratio to the floor."""
    columns = [(dtype, backward) for dtype in ("f32", "bf16") for backward in (False, True)]
    groups: dict[str, dict[tuple[str, bool], list[dict]]] = {}
    for row in rows:
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
            of = cells.get(column, [])
            faster, ratio = (geometric_mean([key(row) for row in of]) if of else 0 for key in (speedup, lambda row: row["ratio"]))
            means.append(f"{faster:.2f}× ({ratio:.2f})" if of else "")
        print(f"| {name} | " + " | ".join(means) + " |")


# The problems of `isonorm ladder` whose errors are told as the mean grows.
NUMERICS = [
    "batchnorm x=4096x64 dtype=f32 pass=train",
    "batchnorm x=16x32x16x16 layout=nchw dtype=f32 pass=train",
    "layernorm x=64x4096 dtype=f32 affine=none eps=1e-6 pass=train",
]


def normalized(case: str, x):
    """Without weight and bias."""
    if case.startswith("layernorm"):
        return torch.nn.functional.layer_norm(x, x.shape[1:], eps=1e-6)
    return torch.nn.functional.batch_norm(x, None, None, training=True)


def numerics(options) -> list[dict]:
    """PyTorch's largest errors against the same formula in double precision, by the mean of the data over its deviation."""
    random = torch.Generator().manual_seed(0)
    points = []
    for case in NUMERICS:
        shape = [int(size) for size in case.partition(" x=")[2].split()[0].split("x")]
        normal = torch.randn(shape, generator=random, dtype=torch.float64)
        for power in range(8):
            x = (normal + 10.0**power).to(torch.float32).to(options.device)
            error = (normalized(case, x).double() - normalized(case, x.double())).abs().max().item()
            point = {"implementation": "torch", "case": case, "mean_over_std": 10.0**power}
            points.append(point | ({"error": error} if math.isfinite(error) else {}))
    return points


def cpu_model() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def save(path: str, rows: list[dict], options) -> None:
    """Writes the rows with what made them."""
    # isonorm's record of the last case knows the machine, and what built it.
    measured = options.measured
    record = {
        "schema": SCHEMA,
        "date": options.date,
        "machine": measured["machine"],
        "versions": measured["versions"] | options.versions,
        "settings": measured["settings"] | {"rounds": options.rounds, "min_time_s": options.min_time},
        **({"gpu": measured["gpu"]} if "gpu" in measured else {}),
        "rows": rows,
        **({"numerics": options.points} if options.points else {}),
    }
    pathlib.Path(path).write_text(json.dumps(record, indent=2) + "\n")


def arguments() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="Times are medians.")
    add = parser.add_argument
    add("--suite", type=pathlib.Path, metavar="FILE", help="problems, one a line (default bench/suites/cpu.txt, or gpu.txt)")
    add("--case", action="append", default=[], metavar="PROBLEM", help="one problem; may be repeated")
    add("--device", choices=["cpu", "cuda"], default="cpu", help="where all work (default %(default)s)")
    add("--threads", type=int, default=cores, metavar="N", help="of each (default %(default)s)")
    add("--rounds", type=int, default=3, metavar="N", help="turns of all at a problem (default %(default)s)")
    add("--min-time", type=float, default=0.3, metavar="SECONDS", help="of a turn (default %(default)s)")
    add("--isonorm", type=pathlib.Path, metavar="PROGRAM", help="use this instead of building it")
    add("--save", metavar="FILE", help="write a record (JSON)")
    add("--numerics", action="store_true", help="also record PyTorch's errors as the mean of the data grows")
    add("--table", metavar="FILE", help="print a record as a Markdown table, and measure nothing")
    options = parser.parse_args()
    if options.threads < 1 or options.rounds < 1 or not options.min_time >= 0:
        parser.error("--threads and --rounds are at least 1, --min-time at least 0")
    options.unit = ("milliseconds", 1e3) if options.device == "cpu" else ("microseconds", 1e6)
    options.versions = {"python": platform.python_version()}
    options.date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    options.peers = ["torch"] if options.device == "cpu" else ["torch", "compile"]
    return options


def add_liger(options: argparse.Namespace) -> None:
    """Liger among the peers, where it is there."""
    try:
        options.versions["liger"] = liger_problem.version()
        options.peers.append("liger")
    except ImportError as error:
        say_left_out("Liger", error)


def peers_versions(options: argparse.Namespace) -> dict[str, str]:
    """Of PyTorch and, on a GPU, of what compiles and runs its kernels."""
    versions = {"torch": torch.__version__}
    if options.device != "cpu":
        versions |= {"cuda": str(torch.version.cuda)}
        try:
            versions["triton"] = importlib.metadata.version("triton")
        except importlib.metadata.PackageNotFoundError:
            pass
    return versions


def run(options: argparse.Namespace) -> None:
    if MISSING:
        raise Failure(MISSING)
    options.versions |= peers_versions(options)
    cases = list(options.case)
    if options.suite or not cases:
        suite = "cpu.txt" if options.device == "cpu" else "gpu.txt"
        cases = read_suite(options.suite or ROOT / "bench/suites" / suite) + cases
    if not cases:
        raise Failure("there are no cases to compare")
    program = options.isonorm or build_isonorm()
    if options.device != "cpu":
        add_liger(options)
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    warnings.filterwarnings("ignore", message="Mismatch dtype")

    width = max(map(len, cases)) + 12
    options.points = numerics(options) if options.numerics else []
    print_head(width, options)
    rows: list[dict] = []
    for case in cases:
        row = compare(program, case, options)
        if row is None:
            print(f"{case:<{width}} skipped: isonorm has no kernel")
            continue
        rows.append(row)
        print_row(row, width, options)
        # Behind each case: a run that is cut off leaves what it measured.
        if options.save:
            save(options.save, rows, options)
    if not rows:
        raise Failure("isonorm has no kernel for any of the cases")
    print_summary(rows)


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
