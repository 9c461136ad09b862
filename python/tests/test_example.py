"""The example runs, says what is wrong, and its two networks learn alike."""

from __future__ import annotations

import importlib.util
import re
import statistics
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "digits.py"
SVG = "{http://www.w3.org/2000/svg}"
#: How far apart the losses of a step may be, of their size. Both networks begin with the same bits; then a rounding of
#: 2⁻²⁴ grows from step to step, to some 1e-4 in an epoch; with other seeds to 7e-4.
APART = 1e-2
#: The same on a GPU, whose convolutions add up in another order each time.
APART_ON_GPU = 5e-2
#: How far apart the curves may be drawn, in points; one is 3 % of a loss.
POINTS_APART = {"cpu": 1, "cuda": 3}


def digits():
    """The example as a module."""
    found = importlib.util.spec_from_file_location("digits_example", EXAMPLE)
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


def test_one_epoch(device, tmp_path, monkeypatch, capsys):
    example = digits()
    # Where convolutions round to 10 bits, a last bit of their input can make a thousandth of a difference.
    exact = torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, allow_tf32=False)
    learned = []
    learn = example.learn
    monkeypatch.setattr(example, "learn", lambda *given: learned.append(learn(*given)) or learned[0])
    picture = tmp_path / "digits.svg"
    with exact:
        assert example.main(["--epochs", "1", "--device", device, "--threads", "1", "--picture", str(picture)]) == 0
    said = capsys.readouterr().out
    assert "isonorm converted 6 BatchNorm2d" in said and "4 BatchNorm2d + relu, 2 BatchNorm2d + add + relu" in said
    assert "6 of 6 BatchNorms" in said and "360 of 360 images are named as before" in said

    theirs, ours = learned[0]
    assert len(theirs.losses) == len(ours.losses) == (1797 - 360) // 64
    for step, (a, b) in enumerate(zip(theirs.losses, ours.losses)):
        assert abs(a - b) <= (APART if device == "cpu" else APART_ON_GPU) * a, f"step {step}: {a} and {b}"
    assert statistics.mean(ours.losses[-5:]) < 0.7 * ours.losses[0]

    svg = ElementTree.parse(picture).getroot()
    curves = [line.get("points").split() for line in svg.iter(f"{SVG}polyline")]
    assert len(curves) == 2 and len(curves[0]) == len(curves[1]) > 2
    width, height = (float(svg.get(name)) for name in ("width", "height"))
    for x, y in (map(float, point.split(",")) for curve in curves for point in curve):
        assert 0 <= x <= width and 0 <= y <= height
    for a, b in zip(*curves):
        assert abs(float(a.split(",")[1]) - float(b.split(",")[1])) < POINTS_APART[device]


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--data", "nowhere.csv.gz"], "nowhere.csv.gz is not there; --data says"),
        (["--data", __file__], "cannot read"),
        (["--device", "tpu"], "expected auto, cpu, cuda or cuda:N"),
        (["--device", "cuda:99"], "there is no such GPU"),
        (["--batch", "2000"], "there are 1437 images"),
        (["--epochs", "0"], "not a number of at least 1"),
        (["--learning-rate", "-1"], "not a number above 0"),
        (["--picture", "nowhere/digits.svg"], "there is no such folder"),
        ("--learning-rate 1e30 --epochs 1 --device cpu --picture digits.svg".split(), "there is nothing to draw"),
    ],
)
def test_errors_are_lines(arguments, words, capsys, tmp_path, monkeypatch):
    example = digits()
    monkeypatch.chdir(tmp_path)
    try:
        code = example.main(arguments)
    except SystemExit as exit:
        code = exit.code
    assert code == 2
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said


def test_help():
    done = subprocess.run([sys.executable, str(EXAMPLE), "--help"], capture_output=True, text=True, check=True)
    assert re.search(r"--picture FILE", done.stdout) and "--epochs" in done.stdout
