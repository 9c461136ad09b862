"""Part 3: a training step of ResNet-50, before and after `isonorm.torch.convert`.

Synthetic images that stay the same, cross entropy, SGD with momentum and weight decay, gradients set to None. Both
begin with the same weights and see the same images, so that their losses after a few steps say whether they compute
the same. Steps are enqueued several at a time, as training does, and the time is that until all are done.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Callable, Dict, List, Optional, Tuple

import torch
import torch.nn.functional as F

import isonorm.torch

from . import table
from .models import Contestant, OutOfMemory, Result, compete, compiled, convolutions_are_chosen, release
from .resnet import resnet50

CLASSES = 1000
# Small, so that rounding grows little within the steps that are compared.
LEARNING_RATE = 2e-4
MOMENTUM, WEIGHT_DECAY = 0.9, 1e-4
# Steps before anything is timed, whose losses are compared.
COMPARED_STEPS = 5
# Losses may differ by so many times what PyTorch's own change when the images are rounded differently.
NOISE_FACTOR = 4.0
EAGER, OWN, COMPILED, OWN_COMPILED, WITHOUT = "torch", "isonorm", "compile", "isonorm+compile", "without norms"
CONTROL = "torch, on images that are rounded differently"
CALLED = {
    EAGER: "PyTorch",
    OWN: "isonorm",
    COMPILED: "PyTorch, compiled",
    OWN_COMPILED: "isonorm, compiled",
    WITHOUT: "PyTorch without any norm",
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """How the network is trained."""

    name: str
    bf16: bool
    channels_last: bool
    # How much losses may differ, as a share of the first, whatever rounding does.
    tolerance: float
    # How much images are changed by another rounding, as a share of each value.
    rounding: float
    # About, of a step at 224x224, to begin with a batch that fits.
    bytes_an_image: int


SETTINGS = (
    Setting("bf16", True, True, 0.02, 2.0**-8, 60 << 20),
    Setting("f32", False, False, 0.005, 2.0**-23, 105 << 20),
)


@dataclasses.dataclass
class Options:
    """What the command line says; None where it says nothing."""

    device: torch.device
    quick: bool = False
    batch: Optional[int] = None
    image: Optional[int] = None
    settings: Tuple[str, ...] = tuple(setting.name for setting in SETTINGS)
    compile: bool = False
    without_norms: bool = False

    @property
    def size(self) -> int:
        return self.image or (224 if self.device.type == "cuda" else 64)

    @property
    def rounds(self) -> Tuple[int, int]:
        """Samples, and steps of a sample."""
        if self.device.type == "cuda":
            return (3, 4) if self.quick else (7, 10)
        return (1, 1) if self.quick else (5, 1)

    @property
    def compared_steps(self) -> int:
        # From the second step on, what two images of 64x64 make of a rounding is chance.
        return 1 if self.quick and self.device.type != "cuda" else COMPARED_STEPS


@dataclasses.dataclass
class Outcome:
    """One setting, measured."""

    setting: Setting
    batch: int
    size: int
    model: str
    tf32: bool
    # PyTorch's losses on images that are rounded differently: how rounding grows in this network.
    control: List[float]
    results: Dict[str, Result]

    @property
    def compared_steps(self) -> int:
        return len(self.control)

    def difference(self) -> Optional[float]:
        """The largest between PyTorch's losses and isonorm's; None without any."""
        eager, own = (self.results[name].values for name in (EAGER, OWN))
        return _largest(eager, own) if eager and own else None

    def allowed(self) -> float:
        """What that may be."""
        eager = self.results[EAGER].values
        return self.setting.tolerance * abs(eager[0]) + NOISE_FACTOR * _largest(eager, self.control)

    def agrees(self) -> Optional[bool]:
        """Whether the losses of PyTorch and isonorm are the same but for rounding; None without any."""
        difference = self.difference()
        return None if difference is None else difference <= self.allowed()

    def _compared(self) -> dict:
        if self.agrees() is None:
            return {}
        numbers = {"loss_difference": self.difference(), "loss_allowed": self.allowed()}
        return {name: number for name, number in numbers.items() if math.isfinite(number)}

    def recorded(self) -> dict:
        def one(result: Result) -> dict:
            if result.times is None:
                return {"left_out": result.reason}
            peak = {} if result.peak_bytes is None else {"peak_bytes": result.peak_bytes}
            losses = [loss for loss in result.values if loss == loss and abs(loss) != float("inf")]
            times = {
                "median_s": result.times.median,
                "spread": result.times.spread,
                "samples": len(result.times.samples),
            }
            return {**times, **peak, "losses": losses}

        return {
            "model": "resnet50",
            "from": self.model,
            "dtype": self.setting.name,
            "channels_last": self.setting.channels_last,
            "tf32_convolutions": self.tf32,
            "batch": self.batch,
            "image": self.size,
            **self._compared(),
            "agrees": self.agrees(),
            "results": {name: one(result) for name, result in self.results.items()},
        }


def _largest(ones: List[float], others: List[float]) -> float:
    """The largest difference; of what is no number infinity."""
    differences = [abs(one - other) for one, other in zip(ones, others)]
    return max((d if math.isfinite(d) else math.inf for d in differences), default=0.0)


def measure(options: Options, say: Callable[[str], None]) -> List[Outcome]:
    """Each setting, with a batch that fits."""
    chosen = [setting for setting in SETTINGS if setting.name in options.settings]
    return [_measure(setting, options, say) for setting in chosen]


def _measure(setting: Setting, options: Options, say: Callable[[str], None]) -> Outcome:
    batch = options.batch or _batch_that_fits(setting, options)
    while True:
        tell = lambda what: say(f"step, {setting.name}, batch {batch}: {what}")
        try:
            with convolutions_are_chosen():
                return _with_batch(setting, options, batch, tell)
        except OutOfMemory:
            if options.batch or batch < 2:
                raise MemoryError(
                    f"a step of batch {batch} does not fit the memory; choose a smaller --batch"
                ) from None
        release(options.device)
        batch //= 2
        say(f"step, {setting.name}: out of memory, trying batch {batch}")


def _batch_that_fits(setting: Setting, options: Options) -> int:
    if options.device.type != "cuda":
        return 4
    batch = 64 if options.quick else 256
    free, _ = torch.cuda.mem_get_info(options.device)
    an_image = setting.bytes_an_image * options.size**2 / 224**2
    while batch > 1 and batch * an_image > 0.9 * free:
        batch //= 2
    return batch


def _with_batch(setting: Setting, options: Options, batch: int, say: Callable[[str], None]) -> Outcome:
    device = options.device
    torch.manual_seed(0)
    template, origin = resnet50()
    images = torch.randn(batch, 3, options.size, options.size, device=device)
    if setting.channels_last:
        images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(CLASSES, (batch,), device=device)

    def of_network(change: Callable[[torch.nn.Module], torch.nn.Module]) -> torch.nn.Module:
        model = copy.deepcopy(template).train().to(device)
        return change(model.to(memory_format=torch.channels_last) if setting.channels_last else model)

    def contestant(name: str, change: Callable[[torch.nn.Module], torch.nn.Module]) -> Contestant:
        return Contestant(name, lambda: _step(of_network(change), images, labels, setting))

    converted = lambda model: isonorm.torch.convert(model, verbose=False)
    contestants = [contestant(EAGER, lambda model: model), contestant(OWN, converted)]
    if options.compile:
        contestants.append(contestant(COMPILED, compiled))
        contestants.append(contestant(OWN_COMPILED, lambda model: compiled(converted(model))))
    if options.without_norms:
        contestants.append(contestant(WITHOUT, _without_norms))
    rounded = images * (1 + setting.rounding * (2 * torch.rand_like(images) - 1))
    control = Contestant(CONTROL, lambda: _step(of_network(lambda model: model), rounded, labels, setting))
    control_losses = compete([control], device, 0, 1, options.compared_steps, say)[CONTROL].values
    samples, runs = options.rounds
    results = compete(contestants, device, samples, runs, options.compared_steps, say)
    tf32 = device.type == "cuda" and torch.backends.cudnn.allow_tf32 and not setting.bf16
    return Outcome(setting, batch, options.size, origin, tf32, control_losses, results)


def _step(
    model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor, setting: Setting
) -> Callable[[], torch.Tensor]:
    """A function that makes a step and returns the loss before it."""
    sgd = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)

    def step() -> torch.Tensor:
        sgd.zero_grad(set_to_none=True)
        with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=setting.bf16):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        sgd.step()
        return loss.detach()

    return step


def _without_norms(model: torch.nn.Module) -> torch.nn.Module:
    """The network without normalization: what is left of a step however fast that is. It learns nothing."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, torch.nn.BatchNorm2d):
                setattr(parent, name, torch.nn.Identity())
    return model


def text(outcomes: List[Outcome]) -> str:
    """A table for each setting."""
    return "\n\n".join(_one(outcome) for outcome in outcomes)


def _one(outcome: Outcome) -> str:
    setting, results = outcome.setting, outcome.results
    layout = "channels last" if setting.channels_last else "channels first"
    numbers = "bf16 autocast" if setting.bf16 else "f32" + (" (convolutions in TF32)" if outcome.tf32 else "")
    sizes = f"batch {outcome.batch}, {outcome.size}x{outcome.size}"
    lines = [f"ResNet-50 ({outcome.model}), a training step of {sizes}, {numbers}, {layout}"]
    eager = results[EAGER].times
    with_peak = any(result.peak_bytes is not None for result in results.values())
    heads = ["", "ms a step", "images/s", "speed-up", *(["peak memory"] if with_peak else [])]
    heads.append(f"loss of step {outcome.compared_steps}")
    rows = []
    for name, result in results.items():
        if result.times is None:
            continue
        seconds = result.times.median
        cells = [CALLED[name], table.digits(seconds * 1e3), table.digits(outcome.batch / seconds)]
        cells.append(table.times(eager.median / seconds) if eager else "")
        cells += [table.gibibytes(result.peak_bytes)] if with_peak else []
        rows.append([*cells, "" if name == WITHOUT or not result.values else f"{result.values[-1]:.4f}"])
    lines.append(table.text_table(heads, rows))
    lines += [f"left out: {CALLED[name]}: {result.reason}" for name, result in results.items() if result.times is None]
    agrees = outcome.agrees()
    if agrees is not None:
        told = "agree" if agrees else "DO NOT AGREE"
        share, factor = f"{setting.tolerance:.1%} of the loss", f"{NOISE_FACTOR:.0f} times"
        lines.append(
            f"The losses of PyTorch and isonorm {told}: they differ by {outcome.difference():.1e} at most.\n"
            f"Up to {outcome.allowed():.1e} is rounding: {share}, and {factor} what PyTorch's changes on images\n"
            "that are rounded differently."
        )
    bound, own = results.get(WITHOUT), results[OWN].times
    if bound is not None and bound.times and eager and own:
        norms = lambda times: 1 - bound.times.median / times.median
        lines.append(f"Norms are {norms(eager):.0%} of PyTorch's step, {norms(own):.0%} of isonorm's.")
    return "\n".join(lines)
