"""Part 1: single layers, isonorm beside others, forward (without gradients) and backward (autograd on a kept graph).

Each is called as its users call it, and allocates its results. Before anything is timed, outputs and gradients are
held against the same formula in float64: the error is the largest difference of any tensor, as a share of that
tensor's largest value. The floor is a copy of as many bytes as must move: every input read once, every output written
once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import warnings
from typing import Callable, Dict, List, Tuple

import torch

from . import table
from .cases import Case, is_backward
from .peers import ABOUT, ISONORM, PEERS, Built, Implementation, LeftOut, norm_of, watched_for_fallback
from .tensors import Parameters, Reference, Tensors
from .timing import Times, prepare, set_count, take_turns

# The floor copies whole pages: on some GPUs the driver's copy of other numbers of bytes takes half as long again.
PAGE = 8192
# Marks what float64 does not agree with.
WRONG = "!"


@dataclasses.dataclass
class Row:
    """A case and one pass of it."""

    case: str
    bytes: int
    sets: int
    floor: Times
    times: Dict[str, Times]
    errors: Dict[str, float]
    wrong: List[str]
    notes: List[str]

    def speedup(self) -> float:
        """The fastest peer's time over isonorm's; NaN where there is no peer."""
        peers = [t.median for name, t in self.times.items() if name != ISONORM.name]
        return min(peers) / self.times[ISONORM.name].median if peers else float("nan")

    def recorded(self) -> dict:
        """As a record has it."""

        def one(name: str) -> dict:
            t = self.times[name]
            error = {"error": self.errors[name]} if 0 <= self.errors.get(name, -1) < float("inf") else {}
            return {"median_s": t.median, "min_s": t.least, "spread": t.spread, "samples": len(t.samples), **error}

        own, floor = one(ISONORM.name), self.floor.median
        return {
            "case": self.case,
            **own,
            "floor_s": floor,
            "floor": "copy",
            "ratio": own["median_s"] / floor,
            "bytes": self.bytes,
            "gbps": self.bytes / own["median_s"] / 1e9,
            "sets": self.sets,
            **({"notes": self.notes} if self.notes else {}),
            "peers": {name: one(name) for name in self.times if name != ISONORM.name},
        }


class Layers:
    """Measures cases one after the other, and keeps what was found."""

    def __init__(self, device: torch.device, peers: List[str], min_time: float, say: Callable[[str], None]):
        self.device, self.min_time, self.say = device, min_time, say
        self.rows: List[Row] = []
        # Of a case and who: why.
        self.left_out: List[Tuple[str, str, str]] = []
        self.peers: List[Implementation] = []
        for peer in (PEERS[name] for name in peers):
            missing = peer.missing(device)
            if missing:
                say(f"{peer.name} is left out: {missing}")
            else:
                self.peers.append(peer)

    def versions(self) -> Dict[str, str]:
        """Of the peers that are there."""
        found = {peer.name: peer.version() for peer in self.peers}
        return {name: version for name, version in found.items() if version}

    def measure(self, case: Case, a_pass: str) -> None:
        """Measures one pass of a case; what cannot be measured is kept with the reason."""
        # Parameters of another type than x are PyTorch's business.
        warnings.filterwarnings("ignore", message="Mismatch dtype")
        try:
            with _side_stream(self.device):
                row = self._measure(case, a_pass)
        except torch.cuda.OutOfMemoryError:
            self._leave_out(case.name(a_pass), ISONORM.name, "out of memory")
            row = None
        finally:
            gc.collect()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        if row is not None:
            self.rows.append(row)
            told = ", ".join(f"{n} {table.digits(t.median * 1e6)} µs" for n, t in row.times.items())
            self.say(f"    {told}")

    def _measure(self, case: Case, a_pass: str):
        name, size = case.name(a_pass), case.compulsory_bytes(a_pass)
        count = set_count(size, self.device)
        sets = [Tensors(case, a_pass, self.device) for _ in range(count)]
        parameters = Parameters(case, self.device)
        reference = self._reference(case, a_pass, parameters, sets[0])
        built, errors, wrong, notes = {}, {}, [], []
        for who in [ISONORM, *self.peers]:
            try:
                one = who.build(case, a_pass, parameters, self.device)
                with watched_for_fallback() as handed:
                    grads = reference.grads if reference is not None else sets[0].grads
                    results = _results(one, sets[0], a_pass, grads)
                if handed:
                    notes.append("isonorm has no kernel for this and hands it to PyTorch: " + name)
                if reference is not None:
                    errors[who.name] = reference.error(results)
                    if reference.is_wrong(errors[who.name]):
                        wrong.append(who.name)
                del results
            except Exception as error:  # Whatever it is, the others go on.
                self._leave_out(name, who.name, reason_of(error))
                if who is ISONORM:
                    return None
                continue
            built[who.name] = one
            notes += [one.note] if one.note and one.note not in notes else []
        del reference
        runs = {}
        for who, one in list(built.items()):
            try:
                runs[who] = prepare([_call(one, tensors, a_pass) for tensors in sets], self.device)
            except Exception as error:
                self._leave_out(name, who, reason_of(error))
                if who == ISONORM.name:
                    return None
                continue
            if self.device.type == "cuda" and not runs[who].captured:
                notes.append(f"{who} cannot be recorded in a graph: its time may be the host's")
        half = max(1, -(-size // (2 * PAGE))) * PAGE
        copies = [_Copy(half, self.device) for _ in range(set_count(2 * half, self.device))]
        runs["floor"] = prepare([copy.run for copy in copies], self.device)
        times = take_turns(runs, self.min_time)
        floor = times.pop("floor").scaled(size / (2 * half))
        return Row(name, size, count, floor, times, errors, wrong, notes)

    def _reference(self, case: Case, a_pass: str, parameters: Parameters, tensors: Tensors):
        try:
            norm = norm_of(torch.nn, case, a_pass, parameters, torch.float64, self.device)
            return Reference(case, a_pass, norm, tensors)
        except torch.cuda.OutOfMemoryError:
            self.say("    no memory for float64: errors are not known")
            return None

    def _leave_out(self, case: str, who: str, reason: str) -> None:
        self.left_out.append((case, who, reason))
        self.say(f"    {who} is left out: {reason}")

    def has_failed(self) -> bool:
        """Whether isonorm was wrong somewhere, or could not do what was asked."""
        own = ISONORM.name
        return any(own in row.wrong for row in self.rows) or any(who == own for _, who, _ in self.left_out)

    def text(self) -> str:
        """Tables of times and of errors."""
        if not self.rows:
            return "no case was measured" + self._left_out_text()
        names = [name for name in [ISONORM.name, *PEERS] if any(name in row.times for row in self.rows)]
        heads = [ISONORM.head, *(PEERS[name].head for name in names[1:])]
        scale, unit = (1e6, "µs") if self.device.type == "cuda" else (1e3, "ms")
        cell = lambda row, n: (
            table.digits(row.times[n].median * scale) + WRONG * (n in row.wrong) if n in row.times else ""
        )
        own = lambda row: row.times[ISONORM.name].median
        lines = [
            [
                row.case,
                *(cell(row, n) for n in names),
                table.digits(row.floor.median * scale),
                table.times(own(row) / row.floor.median),
                table.times(row.speedup()) if row.speedup() == row.speedup() else "",
            ]
            for row in self.rows
        ]
        text = table.text_table([f"layers, {unit} a call", *heads, "copy", "/copy", "speed-up"], lines)
        text += "\n\n" + table.text_table(
            ["largest error, of float64's largest value", *heads],
            [
                [row.case, *(table.small(row.errors.get(n)) + WRONG * (n in row.wrong) for n in names)]
                for row in self.rows
            ],
        )
        return "\n".join([text, "", *self._legend(heads), *self._summary(names)]) + self._left_out_text()

    def _legend(self, heads: List[str]) -> List[str]:
        told = [f"{head}: {ABOUT[head]}" for head in heads[1:]]
        lines = [*told, "copy: the bytes that must move, copied; speed-up: the fastest peer's time over isonorm's"]
        if any(row.wrong for row in self.rows):
            lines.append(f"{WRONG} an error that rounding the results does not explain")
        for note in sorted({note for row in self.rows for note in row.notes}):
            lines.append("note: " + note)
        return lines

    def _summary(self, names: List[str]) -> List[str]:
        lines = []
        for name in names[1:]:
            rows = [row for row in self.rows if name in row.times]
            mean = table.geometric_mean([row.times[name].median / row.times[ISONORM.name].median for row in rows])
            lines.append(
                f"isonorm is {mean:.2f} times as fast as {PEERS[name].head} in the geometric mean of {len(rows)}"
            )
        mean = table.geometric_mean([row.times[ISONORM.name].median / row.floor.median for row in self.rows])
        return [*lines, f"isonorm takes {mean:.2f} times as long as the copy in the geometric mean of {len(self.rows)}"]

    def _left_out_text(self) -> str:
        """Each reason once, with how many cases it is of."""
        reasons: Dict[Tuple[str, str], List[str]] = {}
        for case, who, reason in self.left_out:
            reasons.setdefault((who, reason), []).append(case)
        lines = []
        for (who, reason), cases in reasons.items():
            of = cases[0] if len(cases) == 1 else f"{len(cases)} cases"
            lines.append(f"\nleft out: {who}: {reason} ({of})")
        return "".join(lines)


class _Copy:
    """A copy of so many bytes."""

    def __init__(self, size: int, device: torch.device):
        self.source = torch.ones(size // 4, device=device, dtype=torch.float32)
        self.target = torch.zeros_like(self.source)

    def run(self) -> None:
        self.target.copy_(self.source)


def _call(built: Built, tensors: Tensors, a_pass: str) -> Callable[[], object]:
    """The call that is timed."""
    if not is_backward(a_pass):

        def forward():
            with torch.no_grad():
                return built.call(tensors.x, tensors.residual)

        return forward
    outputs = built.call(tensors.x, tensors.residual)
    leaves = [*tensors.inputs, *built.parameters]
    return lambda: torch.autograd.grad(outputs, leaves, tensors.grads, retain_graph=True)


def _results(built: Built, tensors: Tensors, a_pass: str, grads: List[torch.Tensor]) -> List[torch.Tensor]:
    """What is held against float64."""
    if not is_backward(a_pass):
        with torch.no_grad():
            return list(built.call(tensors.x, tensors.residual))
    outputs = built.call(tensors.x, tensors.residual)
    return list(torch.autograd.grad(outputs, [*tensors.inputs, *built.parameters], grads))


def _side_stream(device: torch.device):
    """Where graphs can be recorded."""
    if device.type != "cuda":
        return contextlib.nullcontext()
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    return torch.cuda.stream(stream)


def reason_of(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "out of memory"
    if isinstance(error, (LeftOut, ImportError)):
        return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}"[:200] if lines else type(error).__name__
