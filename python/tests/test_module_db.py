"""PyTorch's own module test material (`module_db`) run on our modules and on PyTorch's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db

import isonorm.torch as iso
from layers import check_strides, outcome, randomize, run, same_refusal
from reference import DTYPES, call_of, judge

NAMES = (
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
    "LayerNorm", "RMSNorm",
)  # fmt: skip
INFOS = {info.module_cls.__name__: info for info in module_db if info.module_cls.__name__ in NAMES}
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}

# (module, description of its input) -> why our result may differ there from PyTorch's. None so far.
EXCEPTIONS: dict = {}


def inputs_of(name, device, dtype, training):
    """The constructor's and forward's arguments that PyTorch tests with."""
    info = INFOS[name]
    make = info.module_inputs_func
    return make(info, device=device, dtype=dtype, requires_grad=True, training=training)


def test_every_module_is_covered():
    assert sorted(INFOS) == sorted(NAMES)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_samples(name, dtype, training, device):
    samples = inputs_of(name, device, dtype, training)
    assert samples
    for sample in samples:
        if (name, sample.desc) in EXCEPTIONS:
            continue
        make, given = sample.constructor_input, sample.forward_input
        theirs = getattr(torch.nn, name)(*make.args, **make.kwargs, device=device, dtype=dtype)
        ours = getattr(iso, name)(*make.args, **make.kwargs, device=device, dtype=dtype)
        randomize(theirs)
        ours.load_state_dict(theirs.state_dict(), strict=True)
        (x,) = given.args
        for form in (torch.contiguous_format, FORMATS.get(x.ndim)):
            if form is None or given.kwargs:
                continue
            check(theirs, ours, x.detach().to(memory_format=form), training)


def check(theirs, ours, x, training):
    """One input, through copies of both modules."""
    theirs, ours = copy.deepcopy(theirs).train(training), copy.deepcopy(ours).train(training)
    call = call_of(theirs, x)
    unbatched = x.ndim == 2 + int(type(theirs).__name__[-2]) - 1 if call.op == "instancenorm" else False
    dy = torch.randn(x.shape, dtype=torch.float64).to(x.device, x.dtype)
    wanted, found = run(theirs, theirs, x, dy), run(ours, ours, x, dy)
    for key in ("y", "dx"):
        assert found[key].shape == wanted[key].shape
    check_strides(ours, x, found["y"], wanted["y"])
    if unbatched:
        call.x, dy = x[None], dy[None]
        for results in (wanted, found):
            results.update(y=results["y"][None], dx=results["dx"][None])
    judge(call, dy, found, wanted)
    for (name, mine), (other, reference) in zip(ours.state_dict().items(), theirs.state_dict().items()):
        assert name == other and mine.dtype == reference.dtype and mine.shape == reference.shape
        if not mine.is_floating_point():
            assert torch.equal(mine, reference), name
    # In eval mode nothing may change, whatever it is.
    if not training:
        for mine, reference in zip(ours.buffers(), theirs.buffers()):
            assert torch.equal(mine, reference)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", [n for n in NAMES if INFOS[n].module_error_inputs_func is not None])
def test_errors(name, training, device):
    info = INFOS[name]
    samples = info.module_error_inputs_func(info, device, torch.float32, False, training)
    raised = 0
    for sample in samples:
        make = sample.module_error_input.constructor_input
        given = sample.module_error_input.forward_input

        def construct_and_run(library):
            module = getattr(library, name)(*make.args, **make.kwargs, device=device).train(training)
            if sample.error_on is not ModuleErrorEnum.CONSTRUCTION_ERROR:
                module(*given.args, **given.kwargs)

        theirs, ours = outcome(construct_and_run, torch.nn), outcome(construct_and_run, iso)
        raised += same_refusal(ours, theirs)
    assert raised or not training
