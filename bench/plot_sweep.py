#!/usr/bin/env python3
"""Draws a sweep that scripts/gpu.sh records with SWEEP=1: time over floor, by the length of rows, or by batch, channels and sides.

    python bench/plot_sweep.py bench/records/2026-11-23-h200-sweep.json docs/sweep.svg

Any Python with matplotlib and PyTorch will do; problem strings are read by what also computes them in PyTorch.
"""

from __future__ import annotations

import argparse
import json
import math
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
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from problems import Problem
except ImportError as error:
    sys.exit(f"error: {error}; run this with a Python that has matplotlib and PyTorch (pip install matplotlib torch)")

GOAL = 1.4


def by_length(problems: list[tuple[Problem, float]], figure: Figure) -> None:
    """LayerNorm: over the length of a row, a curve for each type and pass."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for problem, ratio in problems:
        name = f"{problem.dtype}, {direction(problem)}"
        curves.setdefault(name, []).append((problem.shape[-1], ratio))
    axes = figure.subplots()
    for name, points in curves.items():
        style = "--" if "backward" in name else "-"
        axes.plot(*zip(*sorted(points)), style, marker="o", markersize=3, label=name)
    axes.set(title=f"LayerNorm, {sizes(problems)}")
    axes.set_xscale("log", base=2)
    finish(axes, "elements of a row")
    axes.legend()


def by_side(problems: list[tuple[Problem, float]], figure: Figure) -> None:
    """BatchNorm: over the positions of a side, a panel for each layout and pass, a colour for each number of channels."""
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    channels = sorted({problem.shape[1] for problem, _ in problems})
    colours = matplotlib.colormaps["viridis"].resampled(len(channels))
    large = max(math.prod(problem.shape) for problem, _ in problems)
    for row, layout in zip(panels, ("nchw", "nhwc")):
        for axes, backward in zip(row, (False, True)):
            here = [(p, r) for p, r in problems if (p.channels_last, p.is_backward) == (layout == "nhwc", backward)]
            for colour, count in enumerate(channels):
                for size, marker in ((False, "."), (True, "o")):
                    of = [(p, r) for p, r in here if p.shape[1] == count and (4 * math.prod(p.shape) > large) == size]
                    axes.plot(
                        [p.shape[-1] for p, _ in of],
                        [ratio for _, ratio in of],
                        marker,
                        markersize=4,
                        color=colours(colour),
                        label=f"{count} channels" if size and axes is panels[0][0] else None,
                    )
            axes.set(title=f"{layout}, {'backward' if backward else 'forward'}")
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
            finish(axes, "positions of a side" if layout == "nhwc" else "", axes is panels[0][0])
    figure.suptitle(f"BatchNorm bf16, {sizes(problems)} (small dots: fewer than a quarter of the most)")
    figure.legend(loc="outside right")


def direction(problem: Problem) -> str:
    return "backward" if problem.is_backward else "forward"


def sizes(problems: list[tuple[Problem, float]]) -> str:
    """How many elements there are, to the next power of two."""
    exponents = sorted({round(math.log2(math.prod(problem.shape))) for problem, _ in problems})
    few = [f"2^{exponent}" for exponent in {exponents[0]: None, exponents[-1]: None}]
    return f"{' to '.join(few)} elements"


def finish(axes: Axes, label: str, is_first: bool = True) -> None:
    goal = f"goal, {GOAL}" if is_first else None
    axes.axhline(GOAL, color="grey", linewidth=0.8, linestyle=":", label=goal)
    axes.set(xlabel=label, ylabel="time over copying as much")
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
    axes.grid(alpha=0.3)


DRAWN = {"layernorm": (by_length, (8, 4.5)), "batchnorm": (by_side, (10, 7))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=pathlib.Path, help="what scripts/gpu.sh saved")
    parser.add_argument("output", type=pathlib.Path, help="the .svg file to write")
    options = parser.parse_args()
    try:
        record = json.loads(options.record.read_text())
        problems = [(Problem.parse(row["case"]), row["ratio"]) for row in record["rows"]]
        draw, size = DRAWN[problems[0][0].op]
    except (OSError, ValueError, KeyError, IndexError) as error:
        parser.error(f"{options.record} is no record of a sweep: {error}")

    figure = pyplot.figure(figsize=size, layout="constrained")
    draw(problems, figure)
    figure.savefig(options.output, metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
