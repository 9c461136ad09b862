"""The engine. Not an interface: use `isonorm` and `isonorm.torch`.

Addresses are of contiguous memory of the plan's device, as long and of such types as its problem says; 0 is none. Nothing is checked about them."""

from typing import TYPE_CHECKING, Optional, Sequence

if TYPE_CHECKING:
    from torch import Tensor

__version__: str

class Plan:
    """How a problem is carried out on a device; `device` is a GPU's number, or -1 for the CPU with `threads` threads."""

    problem: str
    def __new__(cls, problem: str, device: int, threads: int, synchronized: bool = False) -> Plan: ...
    def explain(self) -> str: ...
    def prepare(self) -> None: ...
    def forward(
        self,
        stream: int,
        x: int,
        y: int,
        weight: int,
        bias: int,
        residual: int,
        stream_out: int,
        running_mean: int,
        running_var: int,
        factor: float,
        mean: int,
        rstd: int,
    ) -> None: ...
    def moments(self, stream: int, x: int, mean: int, var: int) -> None: ...
    def backward(
        self,
        stream: int,
        x: int,
        dy: int,
        dx: int,
        weight: int,
        bias: int,
        residual: int,
        dstream: int,
        running_mean: int,
        running_var: int,
        mean: int,
        rstd: int,
        mean_g: int,
        mean_gx: int,
        dweight: int,
        dbias: int,
        dresidual: int,
    ) -> None: ...

class Passes:
    """A forward and a backward pass on tensors of PyTorch that are like those it was made for. `kept` has the attributes `rstd`, `bytes`
    and `gaps`, `kind` the attributes `stream`, `given` and `activates`."""

    def __new__(cls, forward: str, backward: str, device: int, threads: int, kept: object, kind: object) -> Passes: ...
    def forward(
        self,
        x: Tensor,
        weight: Optional[Tensor],
        bias: Optional[Tensor],
        residual: Optional[Tensor],
        running_mean: Optional[Tensor],
        running_var: Optional[Tensor],
        factor: float,
        keep: bool,
        zeros: bool = False,
    ) -> tuple[Tensor, Optional[Tensor], Optional[Tensor]]: ...
    def takes(self, x: Tensor, dy: Tensor, dstream: Optional[Tensor]) -> bool: ...
    def backward(
        self,
        dy: Tensor,
        dstream: Optional[Tensor],
        x: Tensor,
        weight: Optional[Tensor],
        bias: Optional[Tensor],
        residual: Optional[Tensor],
        running_mean: Optional[Tensor],
        running_var: Optional[Tensor],
        saved: Optional[Tensor],
        needs: Sequence[bool],
    ) -> list[Optional[Tensor]]: ...

class Site:
    """The last call of a module."""

    def __new__(cls) -> Site: ...
    def remember(
        self,
        config: tuple,
        x: Tensor,
        weight: Optional[Tensor],
        bias: Optional[Tensor],
        residual: Optional[Tensor],
        running_mean: Optional[Tensor],
        how: object,
        passes: Passes,
        plans: object,
        apply: object,
    ) -> None: ...
    def again(
        self,
        config: tuple,
        x: Tensor,
        weight: Optional[Tensor],
        bias: Optional[Tensor],
        residual: Optional[Tensor],
        running_mean: Optional[Tensor],
        running_var: Optional[Tensor],
        factor: float,
    ) -> object: ...
    def __deepcopy__(self, memo: object) -> Site: ...

def read_by_attributes(on: bool) -> None: ...

class Imported:
    """An array of another library, in the memory of the host, from a capsule of `__dlpack__`."""

    address: int
    shape: list[int]
    strides: list[int]
    dtype: str
    read_only: bool
    def __new__(cls, capsule: object) -> Imported: ...

class Array:
    """A result, for libraries that take DLPack."""

    address: int
    shape: list[int]
    strides: list[int]
    dtype: str
    def __new__(cls, shape: Sequence[int], strides: Sequence[int], dtype: str) -> Array: ...
    def __dlpack__(
        self,
        *,
        stream: Optional[object] = None,
        max_version: Optional[tuple[int, int]] = None,
        dl_device: Optional[tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def cuda_devices() -> int:
    """How many GPUs there are that isonorm can work on; 0 without a driver."""

def explain(problem: str, device: str) -> str:
    """How a problem is carried out, and why so."""
