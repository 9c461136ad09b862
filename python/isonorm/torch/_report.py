"""What a conversion did, for people."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

#: So many paths of a group are named; the others are counted.
_NAMED = 4


class Left(NamedTuple):
    """Something that stays as it is."""

    #: Its path in the model; empty for the model itself.
    path: str
    reason: str


@dataclass
class Report:
    """What was converted, fused or folded, and what was left alone; `str` makes a few lines of it."""

    #: What the numbers in `done` are of: "converted" or "folded".
    verb: str = "converted"
    #: Modules, by the name of their class.
    done: Counter = field(default_factory=Counter)
    #: Calls of norms that do more than to normalize, by what they do: `"BatchNorm2d + add + relu"`.
    fused: Counter = field(default_factory=Counter)
    #: Norms of which no call was fused.
    plain: int = 0
    #: Norms, and modules that could not be looked at, that stay as they are.
    left: list[Left] = field(default_factory=list)

    def leave(self, path: str, reason: str) -> None:
        self.left.append(Left(path, reason))

    def __str__(self) -> str:
        lines = [f"isonorm {self.verb} {_counts(self.done) or 'nothing'}"]
        if self.fused:
            plain = "1 norm stays" if self.plain == 1 else f"{self.plain} norms stay"
            lines.append(f"  fused {_counts(self.fused)}; {plain} plain")
        if self.left:
            lines.append("  left alone:")
        reasons: dict[str, list[str]] = {}
        for path, reason in self.left:
            reasons.setdefault(reason, []).append(path or "the model")
        for reason, paths in reasons.items():
            more = len(paths) - _NAMED
            named = ", ".join(paths[:_NAMED]) + (f" and {more} more" if more > 0 else "")
            lines.append(f"    {reason}: {named}")
        return "\n".join(lines)


def _counts(counter: Counter) -> str:
    return ", ".join(f"{number} {name}" for name, number in counter.most_common())
