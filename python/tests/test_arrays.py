"""The functions for NumPy's arrays and DLPack: values in every order of memory, errors, and no PyTorch needed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import isonorm
from reference import NAMES, Call, judge, within, bounds, exact_results

try:
    import ml_dtypes

    BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    BFLOAT16 = None

TYPES = {
    "float32": (np.dtype("float32"), torch.float32),
    "float64": (np.dtype("float64"), torch.float64),
    "float16": (np.dtype("float16"), torch.float16),
    "bfloat16": (BFLOAT16, torch.bfloat16),
}
SHAPE = (3, 6, 4, 5)
SIMPLE = ("float32", "float64", "float16")


def dtypes(name):
    """NumPy's and PyTorch's type of this name."""
    if TYPES[name][0] is None:
        pytest.skip("no ml_dtypes for bfloat16")
    return TYPES[name]


def to_numpy(t: torch.Tensor, dtype) -> np.ndarray:
    """The same bits as an array."""
    t = t.detach().contiguous()
    return t.view(torch.int16).numpy().view(dtype) if t.dtype == torch.bfloat16 else t.numpy()


def to_torch(a: np.ndarray) -> torch.Tensor:
    """The same bits as a tensor."""
    a = np.ascontiguousarray(a)
    return (
        torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) if a.dtype == BFLOAT16 else torch.from_numpy(a.copy())
    )


def apply(call: Call, x, weight, bias, residual, mean, var):
    """The function of the package for a call, on these arrays."""
    keywords = {"activation": None if call.act == "none" else call.act, "residual": residual}
    if call.op == "batchnorm":
        return isonorm.batch_norm(
            x, mean, var, weight, bias, training=call.training, momentum=0.3, eps=1e-3, **keywords
        )
    if call.op == "instancenorm":
        keywords["use_input_stats"] = call.training
        return isonorm.instance_norm(x, mean, var, weight, bias, momentum=0.3, eps=1e-3, **keywords)
    if call.op == "groupnorm":
        return isonorm.group_norm(x, call.groups, weight, bias, 1e-3, **keywords)
    if call.op == "layernorm":
        return isonorm.layer_norm(x, x.shape[-call.dims :], weight, bias, 1e-3, **keywords)
    return isonorm.rms_norm(x, x.shape[-call.dims :], weight, 1e-3, **keywords)


def calls(dtype):
    """A call of every kind in this type."""
    random = lambda *shape: torch.randn(shape, dtype=torch.float64).to(dtype)
    params = torch.float64 if dtype == torch.float64 else torch.float32
    x = random(*SHAPE) + 0.5
    affine = lambda *shape: (random(*shape).to(params), random(*shape).to(params))
    statistics = lambda: {"running_mean": random(6).to(params), "running_var": random(6).to(params).abs() + 0.5}
    common = {"eps": 1e-3, "momentum": 0.3}
    yield Call("batchnorm", x, *affine(6), act="relu", **statistics(), **common)
    yield Call("batchnorm", x, *affine(6), training=False, residual=random(*SHAPE), **statistics(), **common)
    yield Call("batchnorm", x, residual=random(*SHAPE), act="silu", **common)
    yield Call("instancenorm", x, *affine(6), **statistics(), **common)
    yield Call("instancenorm", x, act="leaky_relu:0.2", **common)
    yield Call("groupnorm", x, *affine(6), groups=3, act="gelu", **common)
    yield Call("layernorm", x, *affine(4, 5), dims=2, residual=random(*SHAPE), **common)
    yield Call("layernorm", x, dims=1, act="hardswish", **common)
    yield Call("rmsnorm", x, affine(5)[0], dims=1, act="tanh", **common)


def last(a):
    """The same array with its channels last in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 1, -1)), -1, 1)


ORDERS = {
    "C order": np.ascontiguousarray,
    "Fortran order": np.asfortranarray,
    "channels last": last,
    "steps": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "backwards": lambda a: np.ascontiguousarray(a[:, ::-1, :, ::-1])[:, ::-1, :, ::-1],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", TYPES)
def test_numpy(name, order):
    """Values within the derived tolerances, the type and the memory order of x, running statistics updated in place."""
    dtype, torch_dtype = dtypes(name)
    for call in calls(torch_dtype):
        own = lambda t: None if t is None else to_numpy(t, dtype if t.dtype == torch.bfloat16 else None).copy()
        x = ORDERS[order](to_numpy(call.x, dtype))
        before = x.copy()
        residual = None if call.residual is None else ORDERS[order](to_numpy(call.residual, dtype))
        mean, var = own(call.running_mean), own(call.running_var)
        y = apply(call, x, own(call.weight), own(call.bias), residual, mean, var)
        assert type(y) is np.ndarray and y.dtype == dtype and y.shape == x.shape
        assert np.array_equal(x, before)
        if order in ("C order", "channels last") and call.op in ("batchnorm", "instancenorm", "groupnorm"):
            assert y.strides == x.strides
        compare(call, y, mean, var)


def compare(call, y, mean, var):
    """The result and the statistics, which only training changes."""
    dy = torch.zeros_like(call.x)
    exact = exact_results(call, dy)
    limits = bounds(call, dy, exact)
    within("y", to_torch(y), exact["y"], limits["y"], None, call.problem)
    for key, array in (("running_mean", mean), ("running_var", var)):
        if array is not None and call.training:
            within(key, to_torch(array), exact[key], limits[key], None, call.problem)
        elif array is not None:
            assert np.array_equal(array, getattr(call, key).numpy())


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
def test_tensors_through_dlpack(name):
    """What has __dlpack__ comes back as an array of its own library, sharing nothing with what went in."""
    _, torch_dtype = TYPES[name]
    for call in calls(torch_dtype):
        for x in (
            call.x,
            call.x.to(memory_format=torch.channels_last),
            call.x.transpose(-1, -2).contiguous().transpose(-1, -2),
        ):
            own = lambda t: None if t is None else t.clone()
            mean, var = own(call.running_mean), own(call.running_var)
            y = apply(call, x, own(call.weight), own(call.bias), own(call.residual), mean, var)
            assert isinstance(y, torch.Tensor) and y.dtype == torch_dtype and y.shape == x.shape
            assert y.data_ptr() != x.data_ptr()
            dy = torch.zeros_like(call.x)
            found = {"y": y, "running_mean": mean, "running_var": var}
            if not call.training or mean is None:
                assert mean is None or torch.equal(mean, call.running_mean)
                found = {"y": y}
            absent = dict.fromkeys(("dx", "dweight", "dbias", "dresidual"))
            theirs = dict(absent, **{k: v for k, v in found.items() if v is not None})
            judge(call, dy, found, theirs)


class Foreign:
    """An array of a library that has nothing but __dlpack__."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_foreign_arrays():
    """The result has __dlpack__, too; it outlives what it came from."""
    x = np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32)
    y = isonorm.layer_norm(Foreign(x), 8)
    found = np.from_dlpack(y).copy() if hasattr(y, "__dlpack_device__") else torch.from_dlpack(y).numpy()
    np.testing.assert_allclose(found, F.layer_norm(torch.from_numpy(x), (8,)).numpy(), rtol=1e-5, atol=1e-6)


def test_memory_is_kept_as_long_as_it_is_needed():
    for _ in range(50):
        y = isonorm.layer_norm(torch.randn(64, 64), 64)
        z = isonorm.rms_norm(y, 64)
        del y
        assert z.isfinite().all()


def test_read_only_arrays():
    """Inputs may be read-only; statistics that are updated may not."""
    x = np.random.default_rng(1).normal(size=(4, 6, 3)).astype(np.float32)
    weight, mean, var = np.ones(6, np.float32), np.zeros(6, np.float32), np.ones(6, np.float32)
    for a in (x, weight, mean, var):
        a.flags.writeable = False
    wanted = F.batch_norm(*(torch.tensor(a) for a in (x, mean, var, weight))).numpy()
    np.testing.assert_allclose(isonorm.batch_norm(x, mean, var, weight), wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="running_mean.*read-only"):
        isonorm.batch_norm(x, mean, var, weight, training=True)
    assert (mean == 0).all() and (var == 1).all()


def test_layout_argument():
    """`layout` says how memory lies where strides leave it open, or asks for a copy."""
    x = np.random.default_rng(1).normal(size=(2, 6, 4)).astype(np.float32)
    for layout in (None, "channels_first", "channels_last"):
        np.testing.assert_allclose(
            isonorm.group_norm(x, 2, layout=layout), F.group_norm(torch.from_numpy(x), 2).numpy(), rtol=1e-5, atol=1e-6
        )
    with pytest.raises(ValueError, match="nhwc"):
        isonorm.group_norm(x, 2, layout="nhwc")


def test_odd_addresses():
    """An array that does not begin at a multiple of its elements' size: right, or a clear error."""
    x = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    odd = np.frombuffer(b"x" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    try:
        y = isonorm.layer_norm(odd, 6)
    except ValueError as error:
        assert "aligned" in str(error)
    else:
        np.testing.assert_array_equal(y, isonorm.layer_norm(x, 6))


@pytest.mark.parametrize("name", SIMPLE)
def test_no_elements(name):
    dtype = np.dtype(name)
    wide = np.float64 if name == "float64" else np.float32
    mean, var = np.zeros(6, wide), np.ones(6, wide)
    y = isonorm.batch_norm(np.zeros((0, 6, 3), dtype), mean, var, training=True)
    assert y.shape == (0, 6, 3) and y.dtype == dtype and (mean == 0).all() and (var == 1).all()
    assert isonorm.layer_norm(np.zeros((0, 6), dtype), 6).shape == (0, 6)
    assert isonorm.rms_norm(np.zeros((2, 0, 6), dtype), 6).shape == (2, 0, 6)


X = np.random.default_rng(2).normal(size=(2, 6, 4)).astype(np.float32)
ONE = np.ones(6, np.float32)
# What is wrong: the call, the exception, and what its message has to name.
ERRORS = {
    "dimensions": (lambda: isonorm.batch_norm(X[0, 0], ONE, ONE), ValueError, "batch_?norm.*dimension"),
    "weight's shape": (lambda: isonorm.batch_norm(X, ONE, ONE, ONE[:5]), ValueError, r"batch_?norm.*weight.*5.*6"),
    "mean's shape": (lambda: isonorm.batch_norm(X, ONE[:5], ONE), ValueError, r"running_mean.*5.*6"),
    "bias' shape": (lambda: isonorm.group_norm(X, 2, ONE, X[0]), ValueError, r"group_?norm.*bias.*6, 4.*6"),
    "residual's shape": (lambda: isonorm.group_norm(X, 2, residual=X[:1]), ValueError, r"residual.*1, 6, 4.*2, 6, 4"),
    "no statistics": (lambda: isonorm.batch_norm(X), ValueError, "running_mean"),
    "one statistic": (lambda: isonorm.batch_norm(X, ONE, training=True), ValueError, "running_var"),
    "groups": (lambda: isonorm.group_norm(X, 4), ValueError, "group.*4"),
    "no groups": (lambda: isonorm.group_norm(X, 0), ValueError, "group"),
    "negative groups": (lambda: isonorm.group_norm(X, -1), ValueError, "group"),
    "normalized_shape": (lambda: isonorm.layer_norm(X, (5,)), ValueError, r"layer_?norm.*5.*4"),
    "long normalized_shape": (lambda: isonorm.layer_norm(X, (1, 2, 6, 4)), ValueError, "layer_?norm"),
    "no normalized_shape": (lambda: isonorm.layer_norm(X, ()), ValueError, "normalized_shape"),
    "rms weight": (lambda: isonorm.rms_norm(X, 4, ONE), ValueError, r"rms_?norm.*weight.*6.*4"),
    "one value": (lambda: isonorm.batch_norm(X[:1, :, 0], training=True), ValueError, "batch_?norm"),
    "one position": (lambda: isonorm.instance_norm(X[:, :, :1]), ValueError, "instance_?norm"),
    "activation": (lambda: isonorm.layer_norm(X, 4, activation="nonsense"), ValueError, "nonsense"),
    "slope": (lambda: isonorm.layer_norm(X, 4, activation="leaky_relu:x"), ValueError, "leaky_relu"),
    "eps": (lambda: isonorm.layer_norm(X, 4, eps=-1.0), ValueError, "eps"),
    "eps that is none": (lambda: isonorm.layer_norm(X, 4, eps=float("nan")), ValueError, "eps"),
    "integers": (lambda: isonorm.layer_norm(X.astype(int), 4), TypeError, "layer_?norm.*int64.*float32"),
    "complex": (lambda: isonorm.layer_norm(X.astype(complex), 4), TypeError, "complex128"),
    "big endian": (lambda: isonorm.layer_norm(X.astype(">f4"), 4), TypeError, "f4"),
    "objects": (lambda: isonorm.layer_norm(X.astype(object), 4), TypeError, "object"),
    "list": (lambda: isonorm.layer_norm(X.tolist(), 4), TypeError, "list"),
    "nothing": (lambda: isonorm.layer_norm(None, 4), TypeError, "NoneType"),
    "number": (lambda: isonorm.layer_norm(3.0, 4), TypeError, "float"),
    "weight's type": (
        lambda: isonorm.batch_norm(X, ONE, ONE, ONE.astype("f8")),
        TypeError,
        "weight.*f(loat)?64.*f(loat)?32",
    ),
    "residual's type": (
        lambda: isonorm.layer_norm(X, 4, residual=X.astype("f8")),
        TypeError,
        "residual.*f(loat)?64.*f(loat)?32",
    ),
    "two types": (
        lambda: isonorm.layer_norm(X.astype("f2"), 4, ONE[:4].astype("f2"), ONE[:4]),
        TypeError,
        "f(loat)?16",
    ),
    "integer tensor": (lambda: isonorm.layer_norm(torch.ones(2, 4, dtype=torch.int32), 4), TypeError, "layer_?norm.*x"),
    "tensor of a graph": (
        lambda: isonorm.layer_norm(torch.ones(2, 4, requires_grad=True), 4),
        (BufferError, RuntimeError, TypeError),
        "grad",
    ),
    "meta tensor": (lambda: isonorm.layer_norm(torch.ones(2, 4, device="meta"), 4), Exception, "."),
    "groups that are none": (lambda: isonorm.group_norm(X, 2.5), (TypeError, ValueError), "2.5|float"),
    "normalized_shape that is none": (lambda: isonorm.layer_norm(X, "4"), (TypeError, ValueError), "normalized_shape"),
}


@pytest.mark.parametrize("what", ERRORS)
def test_errors(what):
    """A clear exception of the right type, in one line, before anything was written."""
    call, kind, words = ERRORS[what]
    with pytest.raises(kind, match=words) as raised:
        call()
    assert len(str(raised.value).splitlines()) == 1 or kind is Exception
    assert (ONE == 1).all()


ALONE = """
import sys
import numpy as np
import isonorm
x = np.linspace(-2, 3, 24, dtype=np.float32).reshape(2, 3, 4)
y = isonorm.layer_norm(x, 4, activation="relu")
z = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
assert np.abs(y - np.maximum(z, 0)).max() < 1e-6
mean, var = np.zeros(3, np.float32), np.ones(3, np.float32)
isonorm.batch_norm(x, mean, var, training=True, momentum=1.0)
assert np.abs(mean - x.mean((0, 2))).max() < 1e-6
assert isonorm.explain("layernorm x=4x8 dtype=f32", "cpu")
assert isonorm.__version__ and isonorm.cuda_available() in (True, False)
assert "torch" not in sys.modules, "PyTorch was imported"
"""
NEITHER = """
import sys
sys.modules["numpy"] = None
import array
import isonorm
assert sys.modules["numpy"] is None and "torch" not in sys.modules
try:
    isonorm.layer_norm([1.0, 2.0], 2)
except TypeError as error:
    assert "list" in str(error)
"""


@pytest.mark.parametrize("program", [ALONE, NEITHER], ids=["without torch", "without numpy"])
def test_what_is_imported(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_explain():
    text = isonorm.explain("batchnorm x=64x256x56x56 layout=nhwc dtype=bf16 act=relu pass=train", "cpu")
    assert "batchnorm" in text and len(text.splitlines()) > 2
    with pytest.raises(ValueError):
        isonorm.explain("nonsense x=2x2", "cpu")
    with pytest.raises(ValueError):
        isonorm.explain("layernorm x=2x2", "no such device")


def test_equal_to_the_modules():
    """One engine: the same bits as isonorm.torch."""
    from isonorm.torch import functional

    x = torch.randn(5, 7, 12)
    for name in ("float32", "float16"):
        t = x.to(TYPES[name][1])
        assert NAMES[t.dtype]
        mine = isonorm.layer_norm(t.numpy(), 12, activation="gelu")
        assert np.array_equal(mine, functional.layer_norm(t, (12,), activation="gelu").numpy())
