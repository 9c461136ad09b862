"""Writes .safetensors files: a little-endian length, a JSON header of that length, then the bytes of all tensors."""

from __future__ import annotations

import json
import struct

import torch

NAMES = {torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64"}
ALIGNMENT = 8


def _bytes(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().contiguous().flatten()
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def write(path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> int:
    """Writes the file and returns its size. Wider types come first, so that every tensor is aligned."""
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    header: dict[str, object] = {"__metadata__": metadata}
    offset = 0
    for name, tensor in ordered:
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in ordered:
            file.write(_bytes(tensor))
    return 8 + len(text) + offset
