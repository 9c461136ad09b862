"""Shared fixtures: seeds, devices, and a loud line for what was skipped."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

# The derived tolerances and the problem strings are those of the Rust library's comparison with PyTorch.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

# Hypothesis leaves its files beside the tests otherwise.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", os.path.join(tempfile.gettempdir(), "hypothesis"))

# Graphs that were compiled with other versions of the operators.
os.environ["TORCHINDUCTOR_FX_GRAPH_CACHE"] = os.environ["TORCHINDUCTOR_AUTOGRAD_CACHE"] = "0"

try:
    import torch
except ImportError:
    torch = None
    collect_ignore_glob = ["*"]

NO_GPU = "no CUDA device that both PyTorch and isonorm can use"


def gpu_is_there() -> bool:
    """Whether the tests on a GPU can run."""
    import isonorm

    return torch.cuda.is_available() and isonorm.cuda_available()


@pytest.fixture(params=["cpu", "cuda"])
def device(request) -> str:
    """Where a test runs; it is skipped where there is no GPU, and the summary says so."""
    if request.param == "cuda" and not gpu_is_there():
        pytest.skip(NO_GPU)
    return request.param


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(20240)
    yield


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "ignore:Mismatch dtype")


def pytest_report_header():
    return "PyTorch is not installed: NO TEST RUNS" if torch is None else None


def pytest_terminal_summary(terminalreporter):
    """One line for each reason of a skip: a skip that nobody sees is a test that nobody runs."""
    reasons = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
        terminalreporter.write_line(f"SKIPPED {count} tests: {reason.replace('Skipped: ', '')}", yellow=True, bold=True)
