"""What only a GPU can get wrong: streams, graphs, several GPUs, addresses, autocast, memory. Skipped, loudly, where there is none."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import nn

import isonorm.torch as iso
from conftest import NO_GPU, gpu_is_there

pytestmark = pytest.mark.skipif(not gpu_is_there(), reason=NO_GPU)

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32

LAYERS = {
    "batch": lambda m, **k: m.BatchNorm2d(32, **k),
    "layer": lambda m, **k: m.LayerNorm((14, 14), **k),
    "rms": lambda m, **k: m.RMSNorm((14,), **k),
    "group": lambda m, **k: m.GroupNorm(4, 32, **k),
    "instance": lambda m, **k: m.InstanceNorm2d(32, affine=True, **k),
}


def pair(name, dtype=F32):
    """torch's layer and ours with the same random parameters, and an input."""
    theirs = LAYERS[name](nn).cuda()
    for p in theirs.parameters():
        nn.init.normal_(p, mean=1)
    ours = LAYERS[name](iso).cuda()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(8, 32, 14, 14, device="cuda").to(dtype)
    return theirs, ours, x


def through(layer, x, dy):
    x = x.detach().requires_grad_()
    y = layer(x)
    gradients = torch.autograd.grad(y, [x, *layer.parameters()], dy)
    return y.detach(), gradients


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [F32, BF16, F16])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_as_exact_as_torch(name, dtype, memory_format):
    theirs, ours, x = pair(name, dtype)
    if dtype != F32:
        theirs, ours = theirs.to(dtype), ours.to(dtype)
    x = x.contiguous(memory_format=memory_format)
    dy = torch.randn_like(x)
    exact = through(copy.deepcopy(theirs).double(), x.double(), dy.double())
    mine, torchs = through(ours, x, dy), through(theirs, x, dy)
    for got, peer, true in zip((mine[0], *mine[1]), (torchs[0], *torchs[1]), (exact[0], *exact[1])):
        assert got.dtype == peer.dtype and got.shape == peer.shape
        error, peers = ((t.double() - true).abs().max().item() for t in (got, peer))
        # No worse than torch, or than a few roundings of the largest element.
        assert error <= max(1.25 * peers, 4 * torch.finfo(dtype).eps * true.abs().max().item()), (error, peers)


def test_another_stream_and_the_default_one():
    _, ours, x = pair("batch")
    expected = ours(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(20):
            y = ours(x * 1)
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(y, expected)


def test_threads_with_streams_of_their_own():
    _, ours, x = pair("layer", BF16)
    expected, failures = ours(x), []

    def work():
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            for _ in range(50):
                if not torch.equal(ours(x), expected):
                    failures.append(threading.get_ident())

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("name", LAYERS)
def test_graph_of_forward_and_backward(name):
    _, ours, x = pair(name)
    static_x = x.clone().requires_grad_()
    dy = torch.randn_like(x)

    def step():
        for t in (static_x, *ours.parameters()):
            t.grad = None
        y = ours(static_x)
        y.backward(dy)
        return y

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = step()
    found = (y, static_x.grad)
    for seed in range(3):
        torch.manual_seed(seed)
        fresh = torch.randn_like(x)
        with torch.no_grad():
            static_x.copy_(fresh)
        graph.replay()
        expected, (dx, *_) = through(ours, fresh, dy)
        torch.cuda.synchronize()
        assert torch.equal(found[0], expected) and torch.equal(found[1], dx)


def test_captured_running_statistics_go_on_at_each_replay():
    _, ours, x = pair("batch")
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            ours(x)
        torch.cuda.current_stream().wait_stream(side)
        eager = copy.deepcopy(ours)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ours(x)
        for _ in range(5):
            graph.replay()
            eager(x)
    assert torch.equal(ours.running_mean, eager.running_mean) and torch.equal(ours.running_var, eager.running_var)
    assert ours.num_batches_tracked.item() == eager.num_batches_tracked.item() == 6


@pytest.mark.parametrize("name", LAYERS)
def test_nothing_waits_for_the_gpu(name):
    _, ours, x = pair(name)
    x.requires_grad_()
    ours(x).sum().backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        ours(x).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", LAYERS)
def test_float64_goes_to_torch(name):
    theirs, ours, x = pair(name)
    theirs, ours, x = theirs.double(), ours.double(), x.double()
    dy = torch.randn_like(x)
    (y, gradients), (expected, others) = through(ours, x, dy), through(theirs, x, dy)
    for got, want in zip((y, *gradients), (expected, *others)):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_autocast_gives_torchs_types(name, dtype):
    theirs, ours, x = pair(name)
    with torch.autocast("cuda", dtype=dtype):
        for data in (x, x.to(dtype)):
            want, got = theirs(data), ours(data)
            assert got.dtype == want.dtype
            torch.testing.assert_close(got.float(), want.float(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", LAYERS)
def test_an_address_that_is_not_aligned(name):
    _, ours, x = pair(name)
    memory = torch.empty(x.numel() + 1, device="cuda")
    off = memory[1:].view(x.shape).copy_(x)
    assert off.data_ptr() % 16 != 0
    torch.testing.assert_close(ours(off), ours(x), rtol=1e-6, atol=1e-6)


def test_the_tensors_gpu_not_the_current_one():
    if torch.cuda.device_count() < 2:
        pytest.skip("fewer than 2 GPUs")
    _, ours, x = pair("batch")
    there = copy.deepcopy(ours).to("cuda:1")
    x1 = x.to("cuda:1").requires_grad_()
    y = there(x1)
    y.sum().backward()
    assert y.device == x1.grad.device == torch.device("cuda:1")
    assert torch.equal(y.cpu(), ours(x).cpu())


def test_a_tensor_of_the_host_is_refused():
    ours = iso.LayerNorm(8).cuda()
    with pytest.raises(RuntimeError):
        ours(torch.randn(2, 8))


def test_no_more_is_kept_for_the_backward_pass():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(64, 64, 1, bias=False)
            self.bn = nn.BatchNorm2d(64)

        def forward(self, x):
            return torch.relu(self.bn(self.conv(x)) + x)

    def kept(model):
        x = (
            torch.randn(32, 64, 56, 56, device="cuda", dtype=BF16)
            .to(memory_format=torch.channels_last)
            .requires_grad_()
        )
        for _ in range(2):
            before = torch.cuda.memory_allocated()
            with torch.autocast("cuda", dtype=BF16):
                y = model(model(model(x)))
            bytes_kept = torch.cuda.memory_allocated() - before
            y.sum().backward()
            del y
        return bytes_kept

    model = Block().cuda().to(memory_format=torch.channels_last)
    before = kept(model)
    # The results, which the next block keeps anyway, and statistics.
    assert kept(iso.convert(model, verbose=False)) <= before * 1.01


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_no_more_memory_is_taken_behind_a_residual(memory_format):
    """The most that a forward and a backward pass take, with torch's addition and ReLU in place."""

    def peak(block):
        x, residual = (
            torch.randn(32, 64, 56, 56, device="cuda").to(memory_format=memory_format).requires_grad_()
            for _ in range(2)
        )
        dy = torch.randn(32, 64, 56, 56, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        # The gradient in another order than x, from somewhere that does not keep it.
        (block(x, residual) * dy).sum().backward()
        return torch.cuda.max_memory_allocated() - before

    theirs = nn.BatchNorm2d(64).cuda()
    ours = iso.BatchNorm2d(64, activation="relu").cuda()
    for _ in range(2):
        taken = peak(ours)
        wanted = peak(lambda x, residual: theirs(x).add_(residual).relu_())
    assert taken <= wanted * 1.01


def test_gradients_are_scaled_and_unscaled():
    theirs, ours, x = pair("batch", F16)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    for layer in (theirs, ours):
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        with torch.autocast("cuda", dtype=F16):
            loss = layer(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", LAYERS)
def test_compiled_by_inductor(name):
    _, ours, x = pair(name)
    compiled = torch.compile(copy.deepcopy(ours), fullgraph=True)
    dy = torch.randn_like(x)
    (y, gradients), (expected, others) = through(compiled, x, dy), through(ours, x, dy)
    for got, want in zip((y, *gradients), (expected, *others)):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
