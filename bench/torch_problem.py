"""Problems as PyTorch carries them out: inputs, the call that is timed, and how it is timed on a CPU and on a GPU."""

from __future__ import annotations

import math
import statistics
import time

import torch
import torch._dynamo
import torch._functorch.config

from problems import DTYPES, Problem

WARM_UP = 3
FEWEST_SAMPLES = 5
# On a GPU: bytes of all sets of inputs, as a multiple of the cache; sets at most; seconds of a graph.
CACHES = 3
MOST_SETS = 64
GRAPH_SECONDS = 2e-3


def formula(p: Problem):
    """What a user writes for the problem, as a function of its tensors."""

    def result(x, weight, bias, mean, var, residual):
        if p.residual == "stream":
            stream = x + residual
            return p.activate(p.normalize(stream, weight, bias, mean, var)), stream
        z = p.normalize(x, weight, bias, mean, var)
        return p.activate(z if residual is None else z + residual)

    return result


def compiled(p: Problem):
    """What `torch.compile` makes of the formula."""
    # A backward pass may be called again and again: its inputs may not be given away.
    torch._functorch.config.donated_buffer = False
    torch._dynamo.reset()
    return torch.compile(formula(p), dynamic=False)


class TorchProblem:
    """A problem's inputs, and the call that is timed: of PyTorch's own kernels, or of a `function` like the formula."""

    def __init__(self, p: Problem, device: str = "cpu", function=None):
        self.p = p
        self.own = function is None
        self.function = function or formula(p)
        dtype, param = DTYPES[p.dtype], DTYPES[p.param]
        if p.op == "rmsnorm" or (device != "cpu" and p.op in ("layernorm", "groupnorm")):
            # PyTorch has no kernel for a weight of another type than x; this is its fast way.
            param = dtype
        memory = lambda: p.from_memory(torch.randn(math.prod(p.shape), device=device).to(dtype))
        self.x, self.dy = memory(), memory()
        self.residual = memory() if p.residual else None
        self.weight = None if p.affine == "none" else torch.randn(p.param_shape, device=device).to(param)
        self.bias = torch.randn(p.param_shape, device=device).to(param) if p.affine == "full" else None
        self.mean = self.var = None
        if p.op == "batchnorm" or p.uses_running:
            self.mean = torch.zeros(p.shape[1], device=device, dtype=param)
            self.var = torch.ones(p.shape[1], device=device, dtype=param)
        self.call = self._backward() if p.is_backward else self._forward

    def _result(self):
        return self.function(self.x, self.weight, self.bias, self.mean, self.var, self.residual)

    def _forward(self):
        with torch.no_grad():
            return self._result()

    def _backward(self):
        p = self.p
        plain = p.act == "none" and not p.residual
        makers = {
            "batchnorm": self._batch_backward,
            "layernorm": self._layer_backward,
            "groupnorm": self._group_backward,
        }
        # On GPUs it is cuDNN's BatchNorm that users get.
        as_used = p.op == "batchnorm" and self.x.is_cuda
        if plain and self.own and not as_used and not p.over_channels and p.op in makers:
            return makers[p.op]()
        # The gradient of a stream is that of both x and the residual.
        residual = None if p.residual == "stream" else self.residual
        leaves = [t for t in (self.x, self.weight, self.bias, residual) if t is not None]
        for leaf in leaves:
            leaf.requires_grad_()
        y = self._result()
        dy = (self.dy, torch.randn_like(self.dy)) if p.residual == "stream" else self.dy
        return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)

    def _mask(self):
        return [True, self.weight is not None, self.bias is not None]

    def _batch_backward(self):
        train, eps = not self.p.uses_running, self.p.resolved_eps
        _, mean, rstd = torch.ops.aten.native_batch_norm(
            self.x, self.weight, self.bias, self.mean, self.var, train, 0.1, eps
        )
        return lambda: torch.ops.aten.native_batch_norm_backward(
            self.dy, self.x, self.weight, self.mean, self.var, mean, rstd, train, eps, self._mask()
        )

    def _layer_backward(self):
        shape = self.p.param_shape
        _, mean, rstd = torch.ops.aten.native_layer_norm(self.x, shape, self.weight, self.bias, self.p.resolved_eps)
        return lambda: torch.ops.aten.native_layer_norm_backward(
            self.dy, self.x, shape, mean, rstd, self.weight, self.bias, self._mask()
        )

    def _group_backward(self):
        n, c, *spatial = self.p.shape
        sizes = (n, c, math.prod(spatial), self.p.groups)
        # On GPUs there is a kernel for channels first only: the forward pass saves x so, and dy is copied.
        first = (lambda t: t.contiguous()) if self.x.is_cuda else (lambda t: t)
        x = first(self.x)
        _, mean, rstd = torch.ops.aten.native_group_norm(x, self.weight, self.bias, *sizes, self.p.resolved_eps)
        return lambda: torch.ops.aten.native_group_norm_backward(
            first(self.dy), x, mean, rstd, self.weight, *sizes, self._mask()
        )

    def time(self, min_time: float) -> float:
        """The median of the seconds of a call."""
        for _ in range(WARM_UP):
            self.call()
        times: list[float] = []
        start = time.perf_counter()
        while len(times) < FEWEST_SAMPLES or time.perf_counter() - start < min_time:
            begun = time.perf_counter()
            self.call()
            times.append(time.perf_counter() - begun)
        return statistics.median(times)


class GpuProblem:
    """A problem on a GPU: several sets of tensors, more than its cache holds, in a graph of many calls, as isonorm's are timed."""

    def __init__(self, p: Problem, set_bytes: int, function=None):
        device = torch.device("cuda")
        l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
        sets = max(1, min(MOST_SETS, math.ceil(CACHES * l2_bytes / max(1, set_bytes))))
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            self.problems = [TorchProblem(p, "cuda", function) for _ in range(sets)]
            for _ in range(WARM_UP):
                for problem in self.problems:
                    problem.call()
            seconds = self._seconds(lambda: [problem.call() for problem in self.problems])
        rounds = max(1, math.ceil(GRAPH_SECONDS / seconds))
        self.calls = rounds * sets
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            for _ in range(rounds):
                # Results are kept for a round, so that they too take turns.
                self.results = [problem.call() for problem in self.problems]

    @staticmethod
    def _seconds(run) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e-3

    def time(self, min_time: float) -> float:
        """The median of the seconds of a call, by the GPU's clock."""
        self.graph.replay()
        times: list[float] = []
        start = time.perf_counter()
        while len(times) < FEWEST_SAMPLES or time.perf_counter() - start < min_time:
            times.append(self._seconds(self.graph.replay) / self.calls)
        return statistics.median(times)
