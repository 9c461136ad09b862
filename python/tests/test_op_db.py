"""PyTorch's own operator test material (`op_db`) run on our functional forms and on PyTorch's."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db

from isonorm.torch import functional
from layers import leaf, outcome, same_refusal, strides
from reference import DTYPES, Call, judge

NAMES = ("batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm")
OPS = {name: [op for op in op_db if op.name == f"nn.functional.{name}" and not op.variant_test_name] for name in NAMES}

# (name, index of the sample) -> why our result may differ there from PyTorch's. None so far.
EXCEPTIONS: dict = {}


def arguments(name, sample):
    """A sample's arguments by name, apart from every other use of them, with strides kept."""
    bound = inspect.signature(getattr(F, name)).bind(sample.input, *sample.args, **sample.kwargs).arguments
    fresh = lambda t: leaf(t).requires_grad_(t.requires_grad)
    return {key: fresh(value) if isinstance(value, torch.Tensor) else value for key, value in bound.items()}


def call_of(name, given) -> Call:
    """What is computed."""
    copy = lambda key: given[key].detach().clone() if given.get(key) is not None else None
    call = Call(name.replace("_", ""), given["input"].detach(), copy("weight"), copy("bias"))
    call.running_mean, call.running_var = copy("running_mean"), copy("running_var")
    call.eps = given.get("eps", None if name == "rms_norm" else 1e-5)
    call.groups = given.get("num_groups", 0)
    call.dims = len(given.get("normalized_shape", (1,)))
    call.training = given.get("use_input_stats", True) if name == "instance_norm" else given.get("training", False)
    call.momentum = given.get("momentum", 0.1)
    return call


def apply(function, given, dy):
    """y, the gradients, and the running statistics afterwards."""
    y = function(**given)
    keys = {"input": "dx", "weight": "dweight", "bias": "dbias"}
    wanted = {keys[k]: t for k, t in given.items() if k in keys and t is not None}
    found = dict(zip(wanted, torch.autograd.grad(y, list(wanted.values()), dy)), y=y.detach())
    for key in ("running_mean", "running_var"):
        if given.get(key) is not None:
            found[key] = given[key]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_signature(name):
    theirs = inspect.signature(getattr(F, name)).parameters
    ours = inspect.signature(getattr(functional, name)).parameters
    describe = lambda p: (p.name, p.kind, p.default)
    assert [describe(p) for p in ours.values()][: len(theirs)] == [describe(p) for p in theirs.values()]
    rest = list(ours.values())[len(theirs) :]
    assert [(p.name, p.kind, p.default) for p in rest] == [
        ("activation", inspect.Parameter.KEYWORD_ONLY, None),
        ("residual", inspect.Parameter.KEYWORD_ONLY, None),
    ]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_samples(name, dtype, device):
    (op,) = OPS[name]
    samples = list(op.sample_inputs(device, dtype, requires_grad=True))
    assert samples
    for index, sample in enumerate(samples):
        if (name, index) not in EXCEPTIONS:
            check(name, sample)


def check(name, sample):
    """One sample: both refuse it, or both agree."""
    call = call_of(name, arguments(name, sample))
    dy = torch.randn(call.x.shape, dtype=torch.float64).to(call.x.device, call.x.dtype)
    theirs, ours = (outcome(apply, getattr(f, name), arguments(name, sample), dy) for f in (F, functional))
    if same_refusal(ours, theirs):
        return
    assert strides(ours["y"]) == strides(theirs["y"])
    if call.x.ndim == 1 and name == "batch_norm":
        assert call.x.numel() == 0 and ours["y"].shape == theirs["y"].shape
        return
    judge(call, dy, ours, theirs, by_torch=call.problem.resolved_eps <= 0)


@pytest.mark.parametrize("name", [name for name in NAMES if OPS[name][0].error_inputs_func is not None])
def test_errors(name, device):
    (op,) = OPS[name]
    samples = list(op.error_inputs(device))
    assert samples
    for sample in samples:
        inputs = sample.sample_input
        with pytest.raises(sample.error_type):
            getattr(F, name)(inputs.input, *inputs.args, **inputs.kwargs)
        with pytest.raises(sample.error_type):
            getattr(functional, name)(inputs.input, *inputs.args, **inputs.kwargs)


BAD_CALLS = {
    "channels": lambda f, x: f.batch_norm(x, torch.zeros(3), torch.ones(3)),
    "weight": lambda f, x: f.batch_norm(x, torch.zeros(4), torch.ones(4), torch.ones(3)),
    "bias": lambda f, x: f.batch_norm(x, torch.zeros(4), torch.ones(4), torch.ones(4), torch.ones(3)),
    "no statistics": lambda f, x: f.batch_norm(x, None, None),
    "one value": lambda f, x: f.batch_norm(x[:1, :, :1, :1], None, None, training=True),
    "variance alone": lambda f, x: f.batch_norm(x, None, torch.ones(4)),
    "integers": lambda f, x: f.batch_norm(x.int(), torch.zeros(4), torch.ones(4)),
    "layer integers": lambda f, x: f.layer_norm(x.int(), (3,)),
    "layer booleans": lambda f, x: f.layer_norm(x > 0, (3,)),
    "rms integers": lambda f, x: f.rms_norm(x.int(), (3,)),
    "group integers": lambda f, x: f.group_norm(x.int(), 2),
    "instance integers": lambda f, x: f.instance_norm(x.int()),
    "layer shape": lambda f, x: f.layer_norm(x, (4,)),
    "layer weight": lambda f, x: f.layer_norm(x, (3,), torch.ones(4)),
    "layer bias": lambda f, x: f.layer_norm(x, (3,), torch.ones(3), torch.ones(4)),
    "layer nothing": lambda f, x: f.layer_norm(x, ()),
    "layer number": lambda f, x: f.layer_norm(x, 3),
    "rms number": lambda f, x: f.rms_norm(x, 3),
    "rms shape": lambda f, x: f.rms_norm(x, (2, 2)),
    "groups": lambda f, x: f.group_norm(x, 3),
    "group weight": lambda f, x: f.group_norm(x, 2, torch.ones(3)),
    "no groups": lambda f, x: f.group_norm(x, 0),
    "negative groups": lambda f, x: f.group_norm(x, -2),
    "instance spatial": lambda f, x: f.instance_norm(x[:, :, :1, :1]),
    "instance statistics": lambda f, x: f.instance_norm(x, use_input_stats=False),
    "instance weight": lambda f, x: f.instance_norm(x, weight=torch.ones(3)),
    "not a tensor": lambda f, x: f.layer_norm(x.tolist(), (3,)),
    "not a tensor in batch_norm": lambda f, x: f.batch_norm(x.numpy(), None, None, training=True),
    "nothing": lambda f, x: f.layer_norm(None, (3,)),
    "eps": lambda f, x: f.batch_norm(x, None, None, training=True, eps=0.0),
    "negative eps": lambda f, x: f.batch_norm(x, torch.zeros(4), torch.ones(4), eps=-1.0),
    "double weight": lambda f, x: f.layer_norm(x, (3,), torch.ones(3, dtype=torch.float64)),
    "double weight of groups": lambda f, x: f.group_norm(x, 2, torch.ones(4, dtype=torch.float64)),
    "double weight of a batch": lambda f, x: f.batch_norm(x, None, None, torch.ones(4).double(), None, True),
    "bfloat16 weight": lambda f, x: f.layer_norm(x, (3,), torch.ones(3, dtype=torch.bfloat16)),
    "bfloat16 weight of a batch": lambda f, x: f.batch_norm(x, None, None, torch.ones(4).bfloat16(), None, True),
    "bfloat16 statistics": lambda f, x: f.batch_norm(x, torch.zeros(4).bfloat16(), torch.ones(4).bfloat16()),
    "two types": lambda f, x: f.batch_norm(x, torch.zeros(4).bfloat16(), torch.ones(4)),
    "statistics with gradients": lambda f, x: f.batch_norm(x, torch.zeros(4).requires_grad_(), torch.ones(4)),
    "another device": lambda f, x: f.layer_norm(x, (3,), torch.ones(3, device="meta")),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls(name):
    """What PyTorch refuses, we refuse with its type; what it takes, we take."""
    call = BAD_CALLS[name]
    x = torch.randn(2, 4, 3, 3)
    theirs, ours = (outcome(call, library, x.clone()) for library in (F, functional))
    if not same_refusal(ours, theirs):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs)
