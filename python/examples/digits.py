"""A small network learns to read handwritten digits, twice: with PyTorch's norms, and after `isonorm.torch.convert`.

    python examples/digits.py
    python examples/digits.py --epochs 20 --device cuda --picture digits.svg

Both begin with the same weights and see the same images in the same order, an epoch in turns, so that what differs is
the norms' kernels: the losses lie on each other, and the times need not. At last the BatchNorms of the converted
network are folded into its convolutions. The images are those of `crates/isonorm/examples/digits`; the README there
says where they are from, and their licence.
"""

from __future__ import annotations

import argparse
import copy
import csv
import gzip
import statistics
import sys
import time
from dataclasses import dataclass, field
from math import ceil, floor, isfinite, log10
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import isonorm.torch

DATA = Path(__file__).resolve().parents[2] / "crates" / "isonorm" / "examples" / "digits" / "digits.csv.gz"
SIDE, CLASSES, WHITE = 8, 10, 16
#: The last images of the file are for testing: neighbours in the file look alike, and a random draw would put such
#: pairs into both parts.
TESTED = 360
MOMENTUM = 0.9
NAMES = ("PyTorch", "isonorm")


class Failure(Exception):
    """What is wrong with what was asked for, for the reader of a terminal."""


# --- The network ----------------------------------------------------------------------------------


class ResidualBlock(nn.Module):
    """Two convolutions, and the block's input added to what they make of it (He et al., 2015)."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y = y + x
        return self.relu(y)


def stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """Convolution, BatchNorm and ReLU, then a residual block."""
    conv = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True), ResidualBlock(outputs))


def network() -> nn.Sequential:
    """Images `N, 1, 8, 8` to the logits of ten digits. Nothing of it knows isonorm."""
    return nn.Sequential(
        stage(1, 24, stride=1),
        stage(24, 48, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, CLASSES),
    )


# --- The data -------------------------------------------------------------------------------------


@dataclass
class Images:
    """Pixels, `N, 1, 8, 8` from 0 to 1, and the digits that they show."""

    pixels: Tensor
    digits: Tensor

    def __len__(self) -> int:
        return len(self.digits)


def load(path: Path, device: torch.device) -> tuple[Images, Images]:
    """Images to learn from, and images to test with."""
    try:
        with gzip.open(path, "rt", newline="") as file:
            rows = [[int(cell) for cell in row] for row in csv.reader(file)]
    except FileNotFoundError:
        where = "--data says where digits.csv.gz is (crates/isonorm/examples/digits)"
        raise Failure(f"{path} is not there; {where}") from None
    except (EOFError, OSError, ValueError) as error:
        raise Failure(f"cannot read {path}: {error}") from None
    if len(rows) <= TESTED or any(len(row) != SIDE * SIDE + 1 or not 0 <= row[-1] < CLASSES for row in rows):
        raise Failure(f"{path}: expected more than {TESTED} lines of {SIDE * SIDE} pixels and a digit")
    table = torch.tensor(rows, device=device)
    pixels = table[:, :-1].reshape(-1, 1, SIDE, SIDE).float() / WHITE
    digits = table[:, -1]
    return Images(pixels[:-TESTED], digits[:-TESTED]), Images(pixels[-TESTED:], digits[-TESTED:])


# --- Training -------------------------------------------------------------------------------------


@dataclass
class Learner:
    """A network that learns, and how it went."""

    name: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    #: The loss of each step.
    losses: list[float] = field(default_factory=list)
    #: The share of the test's images that are named right, after each epoch.
    accuracies: list[float] = field(default_factory=list)
    #: Seconds of each epoch, without the test.
    times: list[float] = field(default_factory=list)

    def epoch(self, images: Images, batches: list[Tensor]) -> None:
        """Sees every batch once."""
        self.model.train()
        losses = []
        wait_for(images.pixels.device)
        start = time.perf_counter()
        for batch in batches:
            loss = F.cross_entropy(self.model(images.pixels[batch]), images.digits[batch])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        wait_for(images.pixels.device)
        self.times.append(time.perf_counter() - start)
        self.losses += torch.stack(losses).tolist()

    @torch.no_grad()
    def test(self, images: Images) -> None:
        """Notes how many images are named right."""
        self.model.eval()
        right = self.model(images.pixels).argmax(1) == images.digits
        self.accuracies.append(right.float().mean().item())


def wait_for(device: torch.device) -> None:
    """A GPU is given its work ahead of time; a clock has to wait for it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def learn(options: argparse.Namespace, device: torch.device, images: Images, tested: Images) -> list[Learner]:
    """Trains the network and its conversion in turns."""
    torch.manual_seed(options.seed)
    plain = network().to(device)
    converted = isonorm.torch.convert(copy.deepcopy(plain))
    learners = []
    for name, model in zip(NAMES, (plain, converted)):
        optimizer = torch.optim.SGD(model.parameters(), options.learning_rate, MOMENTUM)
        learners.append(Learner(name, model, optimizer))
    order = torch.Generator().manual_seed(options.seed)
    print(f"\n{'epoch':>5}{'loss: PyTorch':>17}{'isonorm':>10}{'accuracy: PyTorch':>21}{'isonorm':>10}", flush=True)
    for epoch in range(options.epochs):
        # Whole batches alone: a last one of few images would be normalized by few.
        shuffled = torch.randperm(len(images), generator=order).to(device)
        batches = [part for part in shuffled.split(options.batch) if len(part) == options.batch]
        for learner in learners:
            learner.epoch(images, batches)
            learner.test(tested)
        a, b = (statistics.mean(learner.losses[-len(batches) :]) for learner in learners)
        c, d = (f"{100 * learner.accuracies[-1]:.1f} %" for learner in learners)
        print(f"{epoch + 1:>5}{a:>17.5f}{b:>10.5f}{c:>21}{d:>10}", flush=True)
    return learners


def fold(learner: Learner, tested: Images) -> str:
    """Folds the BatchNorms into the convolutions before them, and says what that does."""
    model = learner.model.eval()
    with torch.no_grad():
        before = model(tested.pixels)
        folded = isonorm.torch.fold(model, verbose=False)
        after = folded(tested.pixels)
    norms = sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())
    left = sum(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    same = (before.argmax(1) == after.argmax(1)).sum().item()
    difference = (before - after).abs().max().item()
    return (
        f"folded    {norms - left} of {norms} BatchNorms into convolutions: {same} of {len(tested)} images are named "
        f"as before, logits differ by {difference:.0e} at most"
    )


# --- The picture ----------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 360, 64, 20, 48, 44
STYLE = """\
:root{color-scheme:light dark;--text:#1B1F24;--muted:#57606A;--grid:#D8DCE0;--ground:#FEFEFE;--blue:#0065A8;
--orange:#F0A36B}
@media screen and (prefers-color-scheme:dark){:root{--text:#E8EAED;--muted:#A9B1BA;--grid:#3A4149;--ground:#15181C;
--blue:#56B4E9;--orange:#A8561F}}
text{font:12px sans-serif;fill:var(--muted)}.name{fill:var(--text)}.ground{fill:var(--ground)}.grid{stroke:var(--grid)}
polyline,.key{fill:none;stroke-linejoin:round;stroke-linecap:round}
.c0{stroke:var(--orange);stroke-width:7}.c1{stroke:var(--blue);stroke-width:2}"""
#: A point of a curve is the mean of so many steps: single batches are easy or hard.
POINTS_AN_EPOCH = 3
#: Losses below are drawn as this.
LEAST_LOSS = 1e-9


def smoothed(losses: list[float], epochs: int) -> list[tuple[float, float]]:
    """Epochs, counted from 0, and log₁₀ of the mean loss of the steps around there, where that is finite."""
    steps = len(losses) // epochs
    size = max(steps // POINTS_AN_EPOCH, 1)
    parts = [(start, losses[start : start + size]) for start in range(0, len(losses), size)]
    means = [((start + len(part) / 2) / steps, statistics.mean(part)) for start, part in parts]
    return [(epoch, log10(max(mean, LEAST_LOSS))) for epoch, mean in means if isfinite(mean)]


def picture(learners: list[Learner], epochs: int) -> str:
    """Both curves of the loss, over each other, as an SVG that has the reader's light or dark ground."""
    curves = [smoothed(learner.losses, epochs) for learner in learners]
    exponents = [exponent for curve in curves for _, exponent in curve]
    if not exponents:
        raise Failure("no loss was finite: there is nothing to draw; a smaller --learning-rate may help")
    low, high = floor(10 * min(exponents)) / 10 - 0.1, ceil(10 * max(exponents)) / 10 + 0.1
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def across(epoch: float) -> float:
        return round(LEFT + (right - LEFT) * epoch / epochs, 1)

    def down(exponent: float) -> float:
        return round(TOP + (bottom - TOP) * (high - exponent) / (high - low), 1)

    title = "Training loss by epoch, with PyTorch's norms and after isonorm.torch.convert"
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{title}</title>",
        f"<style>\n{STYLE}\n</style>",
        '<rect class="ground" width="100%" height="100%"/>',
    ]
    for exponent in range(ceil(low), floor(high) + 1):
        y = down(exponent)
        svg.append(f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}"/>')
        svg.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{10.0**exponent:g}</text>')
    every = ceil(epochs / 10)
    for epoch in range(0, epochs + 1, every):
        svg.append(f'<text x="{across(epoch)}" y="{bottom + 18}" text-anchor="middle">{epoch}</text>')
    svg.append(f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 8}" text-anchor="middle">epoch</text>')
    svg.append(f'<text x="{LEFT - 8}" y="{TOP - 14}" text-anchor="end">loss</text>')
    x = LEFT + 16
    for number, (learner, curve) in enumerate(zip(learners, curves)):
        points = " ".join(f"{across(epoch)},{down(exponent)}" for epoch, exponent in curve)
        svg.append(f'<polyline class="c{number}" points="{points}"/>')
        label = f"{learner.name}: {100 * learner.accuracies[-1]:.1f} % of {TESTED} test images right"
        svg.append(f'<line class="key c{number}" x1="{x}" y1="20" x2="{x + 24}" y2="20"/>')
        svg.append(f'<text class="name" x="{x + 36}" y="24">{label}</text>')
        x += 310
    return "\n".join([*svg, "</svg>", ""])


# --- The command line -----------------------------------------------------------------------------


def at_least_one(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return value


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description="Train a small network on handwritten digits with PyTorch's norms and with isonorm's.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    made.add_argument("--epochs", type=at_least_one, default=10, help="how often each network sees every image")
    made.add_argument("--batch", type=at_least_one, default=64, help="images of a step")
    made.add_argument("--learning-rate", type=positive, default=0.02, help="the step size of gradient descent")
    made.add_argument("--seed", type=int, default=1, help="decides the weights and the order of the images")
    made.add_argument("--device", default="auto", help="cpu, cuda or cuda:N; auto is a GPU where there is one")
    made.add_argument("--threads", type=at_least_one, help="threads of the CPU; None leaves it to PyTorch")
    made.add_argument("--data", type=Path, metavar="FILE", default=DATA, help="digits.csv.gz")
    made.add_argument("--picture", type=Path, metavar="FILE", help="draw both curves of the loss, an SVG")
    return made


def device_of(name: str) -> torch.device:
    there = torch.cuda.is_available() and isonorm.cuda_available()
    if name == "auto":
        name = "cuda" if there else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise Failure(f"--device {name}: expected auto, cpu, cuda or cuda:N")
    if device.type == "cuda" and not (there and (device.index or 0) < torch.cuda.device_count()):
        raise Failure(f"--device {name}: there is no such GPU")
    return device


def run(options: argparse.Namespace) -> None:
    device = device_of(options.device)
    if options.threads:
        torch.set_num_threads(options.threads)
    images, tested = load(options.data, device)
    if options.picture and not options.picture.resolve().parent.is_dir():
        raise Failure(f"--picture {options.picture}: there is no such folder")
    if options.batch > len(images):
        raise Failure(f"--batch {options.batch}: there are {len(images)} images to learn from")
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"data      UCI handwritten digits, 8x8: {len(images)} images to learn from, {len(tested)} to test with")
    print(f"training  seed {options.seed}, batches of {options.batch}, SGD, learning rate {options.learning_rate:g}")
    print(f"device    {where}; PyTorch {torch.__version__}, isonorm {isonorm.__version__}\n", flush=True)
    learners = learn(options, device, images, tested)
    theirs, ours = (statistics.median(learner.times) for learner in learners)
    print(f"\ntime      an epoch takes {theirs:.3f} s with PyTorch, {ours:.3f} s with isonorm: 1 : {ours / theirs:.2f}")
    print(fold(learners[1], tested))
    if options.picture:
        options.picture.write_text(picture(learners, options.epochs), encoding="utf-8")
        print(f"picture   {options.picture}")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    try:
        run(parser().parse_args(arguments))
    except (Failure, OSError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
