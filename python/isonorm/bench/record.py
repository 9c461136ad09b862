"""Results with the machine, date and versions that made them, as JSON.

The form is schema 2 of isonorm's benchmark records (`bench/records/README.md` of its repository), so that `isonorm
bench --compare` and `--html` read them; what this benchmark measures besides stands in fields of its own, which they
pass over.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
from typing import Dict, List

import torch

import isonorm

# The version of the JSON's form.
SCHEMA = 2


def now(device: torch.device, settings: dict, peers: Dict[str, str]) -> dict:
    """A record of this machine and moment, of nothing yet. `peers` are versions by name."""
    return {
        "schema": SCHEMA,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": {"cpu": cpu_model(), "cores": cores(), "os": operating_system()},
        "versions": {**versions(device), **peers},
        "settings": {"threads": torch.get_num_threads(), "program": "isonorm.bench", **settings},
        **({"gpu": gpu(device)} if device.type == "cuda" else {}),
        "rows": [],
    }


def save(record: dict, path: str) -> None:
    """Writes a record, whole or not at all."""
    target = pathlib.Path(path)
    pending = target.with_name(target.name + ".part")
    pending.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    os.replace(pending, target)


def versions(device: torch.device) -> Dict[str, str]:
    """Of isonorm, of PyTorch and of what compiles and runs its kernels."""
    found = {"isonorm": isonorm.__version__, "torch": torch.__version__, "python": platform.python_version()}
    names = ["torchvision"]
    if device.type == "cuda":
        names.append("triton")
        found["cuda"] = str(torch.version.cuda)
        if torch.backends.cudnn.is_available():
            found["cudnn"] = str(torch.backends.cudnn.version())
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def gpu(device: torch.device) -> dict:
    """What is told of a GPU."""
    properties = torch.cuda.get_device_properties(device)
    about = {
        "name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "sms": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
    }
    cache = getattr(properties, "L2_cache_size", None)
    if cache:
        about["l2_bytes"] = cache
    driver = _read("/sys/module/nvidia/version")
    if driver:
        about["driver"] = driver
    return about


def about_machine(device: torch.device) -> str:
    """What works, in one line."""
    threads = torch.get_num_threads()
    host = f"{cpu_model()}, {threads} thread{'s' if threads != 1 else ''}"
    return torch.cuda.get_device_name(device) if device.type == "cuda" else host


def cpu_model() -> str:
    """The processor's name as Linux tells it; elsewhere what Python knows."""
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """Hardware threads that the process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def operating_system() -> str:
    """Its name, and on Linux the first two numbers of the kernel's version."""
    numbers: List[str] = platform.release().replace("-", ".").split(".")[:2]
    return f"{platform.system().lower()} {'.'.join(numbers)}".strip()


def _read(path: str) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
