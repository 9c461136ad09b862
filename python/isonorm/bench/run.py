"""Runs the parts that the command line asks for, prints their tables and keeps the record."""

from __future__ import annotations

import argparse
import sys
from typing import List, Optional, Sequence

import torch

import isonorm

from . import block, overhead, record, step
from .cases import Case, Failure, default_cases
from .layers import Layers
from .peers import PEERS

MIN_TIME, QUICK_MIN_TIME = 0.2, 0.02


def run(options: argparse.Namespace, parts: Sequence[str]) -> int:
    """The exit code: 1 where isonorm's results are not right."""
    device = device_of(options.device)
    # Before anything is measured: whatever is wrong with them is told at once.
    cases = [Case.parse(text) for text in options.case or default_cases(device.type == "cuda", options.quick)]
    peers = _names(options.peers, PEERS, "peer")
    settings = tuple(_names(options.dtypes, [setting.name for setting in step.SETTINGS], "type"))
    if options.peers is None and device.type != "cuda":
        peers = ["torch"] if options.quick else [name for name in peers if not PEERS[name].needs_gpu]
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    bench = Bench(options, device)
    print(f"{bench.about}\n", flush=True)
    if "layers" in parts:
        bench.layers(cases, peers)
    if "overhead" in parts:
        bench.overhead()
    if "step" in parts:
        bench.step(settings)
    if "block" in parts:
        bench.block()
    return 1 if bench.failed else 0


def _names(text: Optional[str], known, what: str) -> List[str]:
    """The names in a list with commas, in the order of those that are known."""
    if text is None:
        return list(known)
    given = [name for name in text.split(",") if name]
    for name in given:
        if name not in known:
            raise Failure(f"unknown {what} {name!r}; expected some of {', '.join(known)}")
    return [name for name in known if name in given]


def device_of(name: str) -> torch.device:
    """The device that is asked for, made the current one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise Failure(f"--device {name}: expected cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise Failure(f"--device {name}: expected cpu, cuda or cuda:N")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise Failure(f"--device {name}: PyTorch {torch.__version__} finds no GPU")
        if not isonorm.cuda_available():
            raise Failure(f"--device {name}: isonorm finds no GPU that it can work on")
        device = torch.device("cuda", device.index or 0)
        if device.index >= torch.cuda.device_count():
            raise Failure(f"--device {name}: there are {torch.cuda.device_count()} GPUs")
        torch.cuda.set_device(device)
    return device


class Bench:
    """One run of the program: what is printed, and the record."""

    def __init__(self, options: argparse.Namespace, device: torch.device):
        self.options, self.device, self.failed = options, device, False
        versions = record.versions(device)
        told = ", ".join(f"{name} {version}" for name, version in versions.items())
        self.about = f"{record.about_machine(device)}; {told}"
        self.record = record.now(device, {"quick": options.quick}, {})

    def say(self, what: str) -> None:
        """Progress."""
        print(what, file=sys.stderr, flush=True)

    def save(self) -> None:
        if self.options.save:
            record.save(self.record, self.options.save)

    def layers(self, cases, peers) -> None:
        default = QUICK_MIN_TIME if self.options.quick else MIN_TIME
        min_time = default if self.options.min_time is None else self.options.min_time
        layers = Layers(self.device, peers, min_time, self.say)
        self.record["versions"].update(layers.versions())
        self.record["settings"].update(min_time_s=min_time, timed="module calls")
        wanted = [(case, a_pass) for case in cases for a_pass in case.passes]
        for number, (case, a_pass) in enumerate(wanted):
            self.say(f"layers {number + 1}/{len(wanted)}: {case.name(a_pass)}")
            layers.measure(case, a_pass)
            # Behind each case: a run that is cut off leaves what it measured.
            self.record["rows"] = [row.recorded() for row in layers.rows]
            left_out = [{"case": c, "peer": who, "reason": reason} for c, who, reason in layers.left_out]
            self.record["left_out"] = [entry for entry in left_out if entry["peer"] != "isonorm"]
            own = [{"case": e["case"], "reason": e["reason"]} for e in left_out if e["peer"] == "isonorm"]
            if own:
                self.record["skipped"] = own
            self.save()
        self.failed |= layers.has_failed()
        print(layers.text() + "\n", flush=True)

    def overhead(self) -> None:
        rows = overhead.measure(self.device, self.options.quick, self.say)
        self.record["overhead"] = [row.recorded() for row in rows]
        self.save()
        print(overhead.text(rows) + "\n", flush=True)

    def step(self, settings) -> None:
        o = self.options
        asked = step.Options(
            self.device,
            o.quick,
            o.batch,
            o.image,
            settings,
            compile=bool(o.compile),
            without_norms=bool(o.without_norms),
        )
        outcomes = step.measure(asked, self.say)
        self.failed |= any(outcome.agrees() is not True for outcome in outcomes)
        self.record["step"] = [outcome.recorded() for outcome in outcomes]
        self.save()
        print(step.text(outcomes) + "\n", flush=True)

    def block(self) -> None:
        o = self.options
        compiles = self.device.type == "cuda" if o.compile is None else o.compile
        asked = block.Options(self.device, o.quick, o.block_batch, o.length, o.width, o.layers, o.block_dtype, compiles)
        outcomes = block.measure(asked, self.say)
        self.failed |= any(outcome.both["isonorm"].times is None for outcome in outcomes)
        self.record["block"] = [outcome.recorded() for outcome in outcomes]
        self.save()
        print(block.text(outcomes) + "\n", flush=True)
