"""How a call is timed.

On a CPU a sample is a call, or as many as fill 50 µs, by the host's clock. On a GPU calls are recorded into a graph
of about 2 ms, which is replayed and timed by the GPU's clock between two events; they take turns with several sets of
tensors, which together are three times the second-level cache, so that none finds its own there. What cannot be
recorded is enqueued call by call between two events: there the host may be what is timed, and the result says so.

All that is compared takes turns, so that whatever else the machine does meets all of them. A turn begins with a
sample that is not counted. Times are medians.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from typing import Callable, Dict, List, Sequence

import torch

WARM_UP = 3
TURNS = 4
# Of a turn.
FEWEST_SAMPLES = 3
MOST_SAMPLES = 1000
# A sample of the host's clock lasts at least so long, so that the clock's own time does not count.
SHORTEST_SAMPLE = 50e-6
# A graph lasts about so long, so that its own launch does not count.
GRAPH_SECONDS = 2e-3
# All sets of tensors together, as a multiple of the second-level cache; sets at most; their share of the free memory.
CACHES = 3
MOST_SETS = 64
MEMORY_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class Times:
    """Samples, in seconds of one call."""

    samples: List[float]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def least(self) -> float:
        return min(self.samples)

    @property
    def spread(self) -> float:
        """From the 10th to the 90th percentile, as a share of the median."""
        ordered = sorted(self.samples)
        last = len(ordered) - 1
        return (ordered[round(0.9 * last)] - ordered[round(0.1 * last)]) / self.median

    def scaled(self, factor: float) -> Times:
        return Times([sample * factor for sample in self.samples])


class HostRun:
    """A call by the host's clock."""

    captured = False

    def __init__(self, calls: Sequence[Callable[[], object]]):
        self.call = calls[0]
        warm = []
        for _ in range(WARM_UP):
            start = time.perf_counter()
            self.call()
            warm.append(time.perf_counter() - start)
        self.repeats = max(1, math.ceil(SHORTEST_SAMPLE / max(min(warm), 1e-8)))

    def seconds(self) -> float:
        """One sample: seconds of one call."""
        start = time.perf_counter()
        for _ in range(self.repeats):
            self.call()
        return (time.perf_counter() - start) / self.repeats


class QueuedRun:
    """Calls that the host enqueues one after the other, by the GPU's clock."""

    captured = False

    def __init__(self, calls: Sequence[Callable[[], object]]):
        self.calls = list(calls)
        for _ in range(WARM_UP):
            self._enqueue()
        torch.cuda.current_stream().synchronize()
        once = between_events(self._enqueue)
        self.rounds = max(1, math.ceil(GRAPH_SECONDS / max(once, 1e-6)))

    def _enqueue(self) -> None:
        # Results are kept until all of a round are there, so that they take turns as well.
        self.results = [call() for call in self.calls]

    def seconds(self) -> float:
        """One sample: seconds of one call."""

        def rounds():
            for _ in range(self.rounds):
                self._enqueue()

        return between_events(rounds) / (self.rounds * len(self.calls))


class GraphRun:
    """Calls that are replayed as a graph, by the GPU's clock."""

    captured = True

    def __init__(self, queued: QueuedRun):
        stream = torch.cuda.current_stream()
        # The calls hold what the graph reads, such as what was saved for a backward pass.
        self.recorded, queued.results = queued, None
        self.calls = queued.rounds * len(queued.calls)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            for _ in range(queued.rounds):
                self.results = [call() for call in queued.calls]
        self.graph.replay()
        stream.synchronize()

    def seconds(self) -> float:
        """One sample: seconds of one call."""
        return between_events(self.graph.replay) / self.calls


def between_events(run: Callable[[], object]) -> float:
    """Seconds of what is enqueued on the current stream, by the GPU's clock."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e-3


def prepare(calls: Sequence[Callable[[], object]], device: torch.device):
    """What times these calls, which do the same on different tensors. On a GPU not in the default stream."""
    if device.type != "cuda":
        return HostRun(calls)
    queued = QueuedRun(calls)
    try:
        return GraphRun(queued)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception:
        # What waits for the GPU, or allocates past PyTorch, cannot be recorded.
        torch.cuda.synchronize()
        return queued


def set_count(set_bytes: int, device: torch.device) -> int:
    """How many sets of tensors take turns."""
    if device.type != "cuda":
        return 1
    cache = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 64 << 20)
    free, _ = torch.cuda.mem_get_info(device)
    fit = int(free * MEMORY_SHARE / max(1, set_bytes))
    return max(1, min(MOST_SETS, math.ceil(CACHES * cache / max(1, set_bytes)), fit))


def take_turns(runs: Dict[str, object], seconds: float, turns: int = TURNS) -> Dict[str, Times]:
    """Samples of all, each for at least `seconds`."""
    samples: Dict[str, List[float]] = {name: [] for name in runs}
    for _ in range(turns):
        for name, run in runs.items():
            run.seconds()
            start = time.perf_counter()
            for taken in range(MOST_SAMPLES):
                if taken >= FEWEST_SAMPLES and time.perf_counter() - start >= seconds / turns:
                    break
                samples[name].append(run.seconds())
    return {name: Times(taken) for name, taken in samples.items()}
