#!/usr/bin/env python3
"""Draws a sweep over the lengths of rows, which scripts/gpu.sh records with SWEEP=1: time over floor.

    python bench/plot_sweep.py bench/records/2026-11-23-h200-sweep.json docs/sweep.svg

Any Python with matplotlib will do.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))

try:
    import matplotlib
    import matplotlib.ticker

    matplotlib.use("svg")
    # The same file for the same record.
    matplotlib.rcParams["svg.hashsalt"] = "isonorm"
    from matplotlib import pyplot

    from problems import Problem
except ImportError as error:
    sys.exit(f"error: {error}; run this with a Python that has matplotlib (pip install matplotlib)")

GOAL = 1.4


def curves(record: dict) -> dict[str, list[tuple[int, float]]]:
    """Length of a row and time over floor, by type and pass."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in record["rows"]:
        problem = Problem.parse(row["case"])
        name = f"{problem.dtype}, {'backward' if problem.is_backward else 'forward'}"
        found.setdefault(name, []).append((problem.shape[-1], row["ratio"]))
    return {name: sorted(points) for name, points in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=pathlib.Path, help="what scripts/gpu.sh saved")
    parser.add_argument("output", type=pathlib.Path, help="the .svg file to write")
    options = parser.parse_args()
    try:
        record = json.loads(options.record.read_text())
        found = curves(record)
    except (OSError, ValueError, KeyError) as error:
        parser.error(f"{options.record} is no record of a sweep: {error}")

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for name, points in found.items():
        style = "--" if "backward" in name else "-"
        axes.plot(*zip(*points), style, marker="o", markersize=3, label=name)
    axes.axhline(GOAL, color="grey", linewidth=0.8, linestyle=":", label=f"goal, {GOAL}")
    axes.set(
        xlabel="elements of a row",
        ylabel="time over that of copying the same bytes",
        title="LayerNorm, 2^26 elements in all",
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(options.output, metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
