"""Tables for a terminal."""

from __future__ import annotations

import math
from typing import Iterable, List, Optional, Sequence

GAP = "  "


def text_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of text: the first column to the left, the others to the right."""
    lines = [list(heads), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    shown = []
    for number, line in enumerate(lines):
        cells = [
            cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths))
        ]
        shown.append(GAP.join(cells).rstrip())
        if number == 0:
            shown.append(GAP.join("-" * width for width in widths))
    return "\n".join(shown)


def digits(value: Optional[float], count: int = 3) -> str:
    """A number with so many significant digits, never in scientific notation; empty where there is none."""
    if value is None:
        return ""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    places = max(0, count - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}"


def times(value: Optional[float]) -> str:
    """A factor."""
    return "" if value is None else f"{value:.2f}x"


def small(value: Optional[float]) -> str:
    """A number that may be tiny."""
    return "" if value is None else f"{value:.1e}"


def gibibytes(value: Optional[float]) -> str:
    return "" if value is None else f"{value / 2**30:.2f} GiB"


def geometric_mean(values: List[float]) -> Optional[float]:
    """None of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
