"""What surrounds a layer: autocast, scaled losses, checkpointing, hooks, threads, processes, repetition."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading
import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import isonorm.torch as iso
from layers import ACTIVATIONS, LAYERS, composed, leaf, of_name, outcome, run
from reference import call_of, judge

NAMES = ("BatchNorm2d", "InstanceNorm2d", "GroupNorm", "LayerNorm", "RMSNorm")


@pytest.mark.parametrize("data", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("to", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_autocast(name, to, data, device):
    """Under autocast results and gradients have PyTorch's types, whatever comes in."""
    theirs, ours = of_name(name).pair(torch.float32, device)
    x = of_name(name).input(data, device)
    found = []
    for module in (theirs, ours):
        given = leaf(x)
        with torch.autocast(device, dtype=to):
            y = module(given)
        y.float().pow(2).sum().backward()
        found.append((y, given.grad, [p.grad for p in module.parameters()]))
    (wanted, wanted_dx, wanted_parameters), (mine, dx, parameters) = found
    assert mine.dtype == wanted.dtype and dx.dtype == wanted_dx.dtype
    assert [g.dtype for g in parameters] == [g.dtype for g in wanted_parameters]
    tolerance = 0.05 if data == torch.bfloat16 else 1e-3
    torch.testing.assert_close(mine, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_autocast_with_residual(name, device):
    """An activation and a residual under autocast: the types of PyTorch's three steps."""
    theirs, ours = of_name(name).pair(torch.float32, device, activation="silu")
    x = of_name(name).input(torch.float32, device)
    linear = nn.Linear(x.shape[-1], x.shape[-1], device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        skip = linear(x)
        wanted, mine = composed(theirs, x, skip, "silu"), ours(x, skip)
        narrow, ours_narrow = composed(theirs, skip, skip, "silu"), ours(skip, skip)
    assert skip.dtype == torch.bfloat16
    assert mine.dtype == wanted.dtype and ours_narrow.dtype == narrow.dtype


def test_autocast_of_a_model():
    """A transformer's block and a convolutional one with types that autocast chooses on the way."""

    def block(library):
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), library.BatchNorm2d(8), nn.ReLU(), library.GroupNorm(2, 8), nn.Flatten(),
            nn.Linear(288, 16), library.LayerNorm(16), nn.Linear(16, 4), library.RMSNorm(4),
        )  # fmt: skip

    theirs, ours = block(nn), block(iso)
    x = torch.randn(5, 3, 8, 8)
    found = []
    for model in (theirs, ours):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = model(x)
        y.float().pow(2).mean().backward()
        found.append((y.detach(), [p.grad for p in model.parameters()]))
    assert found[0][0].dtype == found[1][0].dtype
    # Eight bits, through three products and four norms.
    torch.testing.assert_close(found[1][0], found[0][0], rtol=0.1, atol=0.1)
    for mine, other in zip(found[1][1], found[0][1]):
        assert mine.dtype == other.dtype and (mine - other).norm() <= 0.1 * other.norm() + 1e-3


def test_scaled_losses():
    """Gradients are linear in the loss's scale; an overflow is infinite or NaN, never a number that looks right."""
    for name in NAMES:
        _, ours = of_name(name).pair(torch.float32, activation="silu")
        x = of_name(name).input()
        gradients = []
        for scale in (1.0, 2.0**16):
            given = leaf(x)
            (ours(given).pow(2).sum() * scale).backward()
            gradients.append([given.grad / scale, *(p.grad / scale for p in ours.parameters())])
            ours.zero_grad()
        for one, other in zip(*gradients):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
        half = copy.deepcopy(ours).half()
        given = leaf(x.half())
        dy = torch.full(x.shape, 6e4, dtype=torch.float16)
        half(given).backward(dy)
        reference = getattr(nn, name)(*of_name(name).arguments, **dict(of_name(name).keywords))
        reference.load_state_dict(ours.state_dict())
        wide = leaf(x.half().double())
        composed(reference.double(), wide, None, "silu").backward(dy.double())
        beyond = reference.weight.grad.abs() > 7e4
        assert (half.weight.grad[beyond].abs() == float("inf")).all(), "an overflow looks like a number"


@pytest.mark.parametrize("reentrant", [True, False], ids=["reentrant", "not reentrant"])
@pytest.mark.parametrize("name", NAMES)
def test_checkpointing(name, reentrant):
    """Recomputation in the backward pass gives the same bits; running statistics move twice, as PyTorch's do."""
    theirs, ours = of_name(name).pair(torch.float64, activation="silu")
    plain = copy.deepcopy(ours)
    x = of_name(name).input(torch.float64)
    a, b, c = (leaf(x) for _ in range(3))
    plain(a).pow(2).sum().backward()
    checkpoint(ours, b, use_reentrant=reentrant).pow(2).sum().backward()
    checkpoint(lambda t: composed(theirs, t, None, "silu"), c, use_reentrant=reentrant).pow(2).sum().backward()
    assert torch.equal(a.grad, b.grad)
    for mine, other in zip(ours.parameters(), plain.parameters()):
        assert torch.equal(mine.grad, other.grad)
    torch.testing.assert_close(list(ours.buffers()), list(theirs.buffers()), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_functional_call(name):
    """Other parameters and buffers for one call; the module's own stay."""
    theirs, ours = of_name(name).pair(torch.float64)
    x = of_name(name).input(torch.float64)
    before = {n: t.clone() for n, t in ours.state_dict().items()}
    found = []
    for module in (theirs, ours):
        state = {n: (t + 1) if t.is_floating_point() else t.clone() for n, t in before.items()}
        found.append((torch.func.functional_call(module, state, (x,)), state))
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-9)
    assert all(torch.equal(t, before[n]) for n, t in ours.state_dict().items())


@pytest.mark.parametrize("residual", [False, True], ids=["alone", "residual"])
@pytest.mark.parametrize("name", NAMES)
def test_saved_tensors(name, residual):
    """What is kept for the backward pass may come back from hooks as copies; it is not more than PyTorch's."""
    layer = of_name(name)
    theirs, ours = layer.pair(torch.float32, activation="relu")
    x, skip = layer.input(), layer.input() if residual else None
    sizes, gradients = [], []
    for forward in (lambda *a: composed(theirs, *a, *([None] if len(a) < 2 else []), "relu"), ours):
        held = {}

        def pack(t, held=held):
            held[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t.clone()

        given = [leaf(t) for t in (x, skip) if t is not None]
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.clone()):
            y = forward(*given)
        gradients.append(torch.autograd.grad(y.pow(2).sum(), given))
        sizes.append(sum(held.values()))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-4)
    # Mean and rstd in lines of 128 bytes, and the mean in f64: small beside the data of a real layer, not of these.
    assert sizes[1] <= sizes[0] + 4096


def test_graph_is_freed_once():
    _, ours = of_name("LayerNorm").pair()
    y = ours(leaf(of_name("LayerNorm").input())).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_memory_is_released():
    """Nothing of a call outlives it: no tensor is kept by plans or graphs."""
    import gc
    import weakref

    _, ours = of_name("BatchNorm2d").pair(activation="relu")
    x, skip = leaf(of_name("BatchNorm2d").input()), leaf(of_name("BatchNorm2d").input())
    y = ours(x, skip)
    y.sum().backward()
    watched = [weakref.ref(t) for t in (x, skip, y)]
    del x, skip, y
    gc.collect()
    assert all(w() is None for w in watched)


@pytest.mark.parametrize("name", ["BatchNorm2d", "LayerNorm"])
def test_threads(name):
    """Several Python threads use one module at once, forward and backward."""
    layer = of_name(name)
    _, ours = layer.pair(torch.float32, activation="gelu", training=False)
    inputs = [layer.input() for _ in range(8)]
    expected = [run(ours, ours, x, torch.ones_like) for x in inputs]
    wrong = []

    def work(x, wanted):
        for _ in range(20):
            found = run(ours, ours, x, torch.ones_like)
            if not all(torch.equal(found[key], wanted[key]) for key in wanted):
                wrong.append(found)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, expected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads) and not wrong


def test_shapes_from_many_threads():
    """Plans for new shapes are made by several threads at once."""
    norm = iso.LayerNorm(16).eval()
    failed = []

    def work(seed):
        for size in range(1, 40):
            x = torch.randn(size + seed, 16)
            if not torch.allclose(norm(x), nn.functional.layer_norm(x, (16,)), atol=1e-5):
                failed.append(size)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert not failed


FORK = """
import os, sys, torch
import isonorm.torch as iso
norm = iso.BatchNorm2d(32)
x, dy = torch.randn(2, 8, 32, 40, 40)
norm(x).backward(dy)
norm.zero_grad()
bits = lambda t: t.detach().numpy().tobytes()
def work():
    y = norm.train()(x)
    gradients = torch.autograd.grad(y, list(norm.parameters()), dy)
    return [bits(t) for t in (y, *gradients, norm.eval()(x))]
child = os.fork()
if child == 0:
    # PyTorch's own functions that use several threads hang in such a child (their pool is gone); these do not.
    os.write(2, b"done" if work() else b"")
    os._exit(0)
_, status = os.waitpid(child, 0)
work()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_fork(threads):
    """A child that was forked after threads have worked computes, and exits (as data loaders' workers do)."""
    # With a GPU, torch's own backward pass refuses to run behind a fork; and Python warns of forks among threads.
    environment = dict(os.environ, OMP_NUM_THREADS=threads, CUDA_VISIBLE_DEVICES="", PYTHONWARNINGS="ignore")
    command = [sys.executable, "-c", "import signal; signal.alarm(60)\n" + FORK]
    done = subprocess.run(command, env=environment, timeout=90, stderr=subprocess.PIPE)
    assert done.returncode == 0 and done.stderr.endswith(b"done"), done.stderr.decode()


@pytest.mark.parametrize("name", NAMES)
def test_number_of_threads(name):
    """torch.set_num_threads is followed, between calls and between forward and backward; bits stay."""
    layer = of_name(name)
    _, ours = layer.pair(torch.float32)
    x, dy = torch.randn(4, *layer.shape[1:]), torch.randn(4, *layer.shape[1:])
    before = torch.get_num_threads()
    first = None
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            module = copy.deepcopy(ours)
            call = call_of(module, x)
            given = leaf(x)
            y = module(given)
            torch.set_num_threads(2)
            gradients = torch.autograd.grad(y, [given, *module.parameters()], dy)
            found = dict(zip(["dx", "dweight", "dbias"], gradients), y=y.detach(), **dict(module.named_buffers()))
            judge(call, dy, found)
            first = found if first is None else first
            # The order of sums follows from the shape, never from the threads.
            assert all(torch.equal(found[k], first[k]) for k in found)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_same_bits_again(layer, device):
    """Equal calls give equal bits."""
    for dtype in (torch.float32, torch.bfloat16):
        _, ours = layer.pair(dtype, device, activation="silu")
        x, dy = layer.input(dtype, device), torch.randn(layer.shape).to(device, dtype)
        runs = []
        for _ in range(3):
            module = copy.deepcopy(ours)
            runs.append(run(module, module, x.clone(), dy.clone()))
        assert all(torch.equal(again[k], runs[0][k]) for again in runs[1:] for k in runs[0])


@pytest.mark.parametrize("first", ["eval", "train"])
@pytest.mark.parametrize("then", ["eval", "train"])
def test_two_forwards_before_a_backward(first, then):
    """As in adversarial training: the running statistics move between a forward pass and its backward pass."""
    theirs, ours = of_name("BatchNorm2d").pair(torch.float64)
    x = of_name("BatchNorm2d").input(torch.float64)
    found = []
    for module in (theirs, ours):
        a, b = leaf(x), leaf(x + 1)
        y = getattr(module, first)()(a)
        wanted = torch.autograd.grad(y.pow(2).sum(), a, retain_graph=True)[0]
        z = getattr(module, then)()(b)
        found.append(
            (outcome(torch.autograd.grad, y.pow(2).sum(), a), wanted, torch.autograd.grad(z.pow(3).sum(), b)[0])
        )
    (_, *reference), (late, *mine) = found
    wanted = mine[0]
    torch.testing.assert_close(mine, reference, rtol=1e-8, atol=1e-8)
    if isinstance(late, RuntimeError):
        # PyTorch gives a wrong gradient where the statistics that a backward pass reads were changed; that may be refused.
        assert (first, then) == ("eval", "train") and "inplace" in str(late)
    else:
        torch.testing.assert_close(late[0], wanted, rtol=1e-8, atol=1e-8)


def test_made_in_inference_mode():
    """A module that was made in inference mode trains its statistics there."""
    x = torch.randn(4, 3, 5)
    with torch.inference_mode():
        theirs, ours = nn.BatchNorm1d(3), iso.BatchNorm1d(3)
        torch.testing.assert_close(ours(x), theirs(x))
        torch.testing.assert_close(ours.running_var, theirs.running_var)
        assert ours.num_batches_tracked == 1


def test_jit_trace():
    """torch.jit.trace records PyTorch's operators or ours; the trace computes the same."""
    theirs, ours = of_name("BatchNorm2d").pair(torch.float32, training=False)
    x = of_name("BatchNorm2d").input()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(ours, x)
    other = torch.randn_like(x)
    torch.testing.assert_close(traced(other), theirs(other), rtol=1e-5, atol=1e-5)


class Logged(torch.Tensor):
    """A subclass that adds nothing."""


@pytest.mark.parametrize("activation", list(ACTIVATIONS), ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_tensor_subclasses(name, activation):
    """Subclasses come back as PyTorch's functions return them: its functions carry out all of it, activations too."""
    theirs, ours = of_name(name).pair(torch.float64, activation=activation)
    x, skip = of_name(name).input(torch.float64), of_name(name).input(torch.float64)
    for residual in (None, skip):
        wanted = composed(theirs, x.as_subclass(Logged), residual, activation)
        found = ours(x.as_subclass(Logged), residual)
        assert type(found) is type(wanted)
        plain = [t.as_subclass(torch.Tensor) for t in (found, wanted)]
        torch.testing.assert_close(*plain, rtol=1e-9, atol=1e-9)


def test_torch_function_mode():
    """A mode that watches functions sees a call or the tensor operations inside, and does not disturb them."""
    from torch.overrides import TorchFunctionMode

    class Watch(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    theirs, ours = of_name("LayerNorm").pair(torch.float64)
    x = of_name("LayerNorm").input(torch.float64)
    with Watch():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-9, atol=1e-9)


def test_anomaly_detection_and_profiler():
    """Both look at what runs, and change nothing."""
    theirs, ours = of_name("GroupNorm").pair(torch.float64)
    x = of_name("GroupNorm").input(torch.float64)
    a, b = leaf(x), leaf(x)
    theirs(a).sum().backward()
    with torch.autograd.detect_anomaly(check_nan=True), torch.profiler.profile():
        ours(b).sum().backward()
    torch.testing.assert_close(b.grad, a.grad, rtol=1e-9, atol=1e-9)
    bad = leaf(torch.full_like(x, float("nan")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="nan"), torch.autograd.detect_anomaly(check_nan=True):
            ours(bad).sum().backward()
