"""Who carries a case out, each as the modules are called that its users have.

An implementation is built for a case and is then a function of `x` and the residual (None where there is none) that
returns the outputs. What it cannot do it says with `LeftOut`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.metadata
import importlib.util
from typing import Callable, Dict, Iterator, List, Optional, Tuple

import torch

import isonorm.torch

from .cases import Case
from .tensors import TORCH_DTYPES, Parameters, activation

Outputs = Tuple[torch.Tensor, ...]
# Liger's RMSNorm computes in f32 throughout, as PyTorch and isonorm do.
LIGER_CASTING = "gemma"


class LeftOut(Exception):
    """An implementation has nothing for a case, with the reason."""


@dataclasses.dataclass(frozen=True)
class Built:
    """An implementation of one case."""

    call: Callable[[torch.Tensor, Optional[torch.Tensor]], Outputs]
    parameters: List[torch.Tensor]
    # What is not as the case says, for the reader.
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Implementation:
    """Somebody who can carry cases out."""

    # In a record, and on the command line.
    name: str
    # The head of its column.
    head: str
    build: Callable[[Case, str, Parameters, torch.device], Built]
    needs_gpu: bool = False
    # What is imported, and the name of its package; empty for what PyTorch has.
    module: str = ""
    package: str = ""

    def missing(self, device: torch.device) -> str:
        """Why it is not there; empty where it is."""
        if self.needs_gpu and device.type != "cuda":
            return "it needs a GPU"
        if self.module and importlib.util.find_spec(self.module) is None:
            return f"not installed ({self.package})"
        return ""

    def version(self) -> str:
        """Its version; empty where nobody knows."""
        try:
            return importlib.metadata.version(self.package) if self.package else ""
        except importlib.metadata.PackageNotFoundError:
            return ""


def norm_of(namespace, case: Case, a_pass: str, parameters: Parameters, dtype: torch.dtype, device, **more):
    """The module of a case as `torch.nn` and `isonorm.torch` name it, with these parameters in this type."""
    eps, spatial = case.resolved_eps, f"{max(1, len(case.shape) - 2)}d"
    if case.op == "batchnorm":
        norm = getattr(namespace, "BatchNorm" + spatial)(case.shape[1], eps=eps, affine=case.affine != "none", **more)
    elif case.op == "instancenorm":
        more = {"affine": case.affine != "none", "track_running_stats": a_pass.endswith("eval"), **more}
        norm = getattr(namespace, "InstanceNorm" + spatial)(case.shape[1], eps=eps, **more)
    elif case.op == "groupnorm":
        norm = namespace.GroupNorm(case.groups, case.shape[1], eps=eps, affine=case.affine != "none", **more)
    elif case.op == "layernorm":
        more = {"elementwise_affine": case.affine != "none", "bias": case.affine == "full", **more}
        norm = namespace.LayerNorm(case.param_shape, eps=eps, **more)
    else:
        norm = namespace.RMSNorm(case.param_shape, eps=eps, elementwise_affine=case.affine != "none", **more)
    norm = norm.to(device=device, dtype=dtype)
    set_parameters(norm, parameters)
    return norm.train(not a_pass.endswith("eval"))


def set_parameters(norm: torch.nn.Module, parameters: Parameters) -> None:
    """Gives a module these parameters and running statistics, in its own types."""
    of = {"weight": "weight", "bias": "bias", "running_mean": "mean", "running_var": "var"}
    with torch.no_grad():
        for name, attribute in of.items():
            place, value = getattr(norm, name, None), getattr(parameters, attribute)
            if place is not None and value is not None:
                place.copy_(value)


class Formula(torch.nn.Module):
    """What a user of PyTorch writes around a normalization."""

    def __init__(self, case: Case, norm: torch.nn.Module):
        super().__init__()
        self.norm, self.act, self.residual = norm, activation(case.activation), case.residual

    def forward(self, x: torch.Tensor, residual: Optional[torch.Tensor]) -> Outputs:
        if self.residual == "stream":
            stream = x + residual
            return self.act(self.norm(stream)), stream
        z = self.norm(x)
        return (self.act(z if residual is None else z + residual),)


def peer_dtype(case: Case, device: torch.device) -> Tuple[torch.dtype, str]:
    """The type of PyTorch's parameters, and a note where it is not the case's.

    PyTorch has kernels for parameters of another type than x for BatchNorm and InstanceNorm, on CPUs for LayerNorm
    and GroupNorm too; elsewhere it converts or refuses. It is given parameters of x's type there, which is its fast
    way.
    """
    mixed = case.op in ("batchnorm", "instancenorm") or (device.type == "cpu" and case.op != "rmsnorm")
    if case.param == case.dtype or mixed:
        return TORCH_DTYPES[case.param], ""
    return TORCH_DTYPES[case.dtype], f"peers' parameters are {case.dtype}"


def build_isonorm(case: Case, a_pass: str, parameters: Parameters, device: torch.device) -> Built:
    dtype = TORCH_DTYPES[case.param]
    norm = norm_of(isonorm.torch, case, a_pass, parameters, dtype, device, activation=case.activation)
    calls = {
        "": lambda x, residual: (norm(x),),
        "add": lambda x, residual: (norm(x, residual),),
        "stream": lambda x, residual: norm(x, stream=residual),
    }
    return Built(calls[case.residual], list(norm.parameters()))


@contextlib.contextmanager
def watched_for_fallback() -> Iterator[List[bool]]:
    """Gives a list that has something in it as soon as isonorm hands something to PyTorch's own functions."""
    from isonorm.torch import _native

    handed: List[bool] = []
    own = _native.normalize

    def watched(*arguments, **more):
        handed.append(True)
        return own(*arguments, **more)

    _native.normalize = watched
    try:
        yield handed
    finally:
        _native.normalize = own


def build_torch(case: Case, a_pass: str, parameters: Parameters, device: torch.device) -> Built:
    dtype, note = peer_dtype(case, device)
    formula = Formula(case, norm_of(torch.nn, case, a_pass, parameters, dtype, device))
    return Built(formula, list(formula.parameters()), note)


def build_native(case: Case, a_pass: str, parameters: Parameters, device: torch.device) -> Built:
    if case.op not in ("batchnorm", "instancenorm"):
        raise LeftOut("only BatchNorm has kernels of cuDNN beside PyTorch's own")
    built = build_torch(case, a_pass, parameters, device)

    def call(x, residual):
        with torch.backends.cudnn.flags(enabled=False):
            return built.call(x, residual)

    return dataclasses.replace(built, call=call)


def build_compile(case: Case, a_pass: str, parameters: Parameters, device: torch.device) -> Built:
    built = build_torch(case, a_pass, parameters, device)
    may_keep_graphs(True)
    # The formula is one function to it, which it compiles for a few modules only before it gives up.
    torch._dynamo.reset()
    return dataclasses.replace(built, call=torch.compile(built.call, dynamic=False))


def may_keep_graphs(kept: bool) -> None:
    """Whether what is compiled from now on goes backward more than once, so that it may not give its inputs away."""
    with contextlib.suppress(ImportError, AttributeError):
        import torch._functorch.config as config

        config.donated_buffer = not kept


def with_parameters(module: torch.nn.Module, case: Case, parameters: Parameters, device, dtype=None) -> torch.nn.Module:
    """A peer's module with the case's parameters, of x's type unless said otherwise."""
    module = module.to(device=device, dtype=dtype or TORCH_DTYPES[case.dtype])
    set_parameters(module, parameters)
    return module


def rows_only(case: Case) -> int:
    """The length of the rows, for those who normalize the last dimension only, without an activation."""
    if case.dims != 1 or case.act != "none" or case.dtype == "f64":
        raise LeftOut("it has no function for this")
    return case.shape[-1]


def build_liger(case: Case, a_pass: str, parameters: Parameters, device: torch.device) -> Built:
    from liger_kernel import transformers as liger

    kind, eps, note = (case.op, case.affine, case.residual), case.resolved_eps, peer_dtype(case, device)[1]
    options = {"eps": eps, "casting_mode": LIGER_CASTING, "in_place": False}
    if kind == ("layernorm", "full", ""):
        module = liger.LigerLayerNorm(rows_only(case), eps=eps, bias=True)
    elif kind == ("rmsnorm", "weight", ""):
        module = liger.LigerRMSNorm(rows_only(case), **options)
    elif kind == ("rmsnorm", "weight", "stream"):
        module = liger.LigerFusedAddRMSNorm(rows_only(case), **options)
        module = with_parameters(module, case, parameters, device)
        return Built(module, list(module.parameters()), note)
    elif kind == ("groupnorm", "full", "") and not case.channels_last and case.act == "none" and case.dtype != "f64":
        from liger_kernel.transformers.group_norm import LigerGroupNorm

        module = LigerGroupNorm(case.shape[1], case.groups, eps=eps, bias=True)
    else:
        raise LeftOut("it has no function for this")
    module = with_parameters(module, case, parameters, device)
    return Built(lambda x, residual: (module(x),), list(module.parameters()), note)


def build_quack(case: Case, a_pass: str, parameters: Parameters, device: torch.device) -> Built:
    # As an attribute `quack.rmsnorm` is the function, which hides the module of the same name.
    module = importlib.import_module("quack.rmsnorm")
    width, eps = rows_only(case), case.resolved_eps
    if case.op == "rmsnorm" and case.affine == "weight" and case.residual != "add":
        weight = parameters.weight.detach().clone().requires_grad_()
        if case.residual == "stream":
            function = lambda x, residual: module.rmsnorm(x, weight, residual=residual, eps=eps, prenorm=True)
        else:
            function = lambda x, residual: (module.rmsnorm(x, weight, eps=eps),)
        return Built(function, [weight])
    if case.op == "layernorm" and case.affine == "full" and not case.residual:
        if a_pass.startswith("backward"):
            raise LeftOut("its LayerNorm has no autograd function")
        weight, bias = parameters.weight.float(), parameters.bias.float()
        note = "" if case.param == "f32" else "quack's parameters are f32"
        forward = module.layernorm_fwd
        return Built(lambda x, residual: (forward(x.view(-1, width), weight, bias, eps).view(x.shape),), [], note)
    raise LeftOut("it has no function for this")


def build_apex(case: Case, a_pass: str, parameters: Parameters, device: torch.device) -> Built:
    eps, affine, note = case.resolved_eps, case.affine != "none", peer_dtype(case, device)[1]
    if case.is_rows and not case.residual and case.act == "none" and (case.op == "rmsnorm" or case.affine != "weight"):
        from apex import normalization

        of = normalization.FusedLayerNorm if case.op == "layernorm" else normalization.FusedRMSNorm
        module = of(case.param_shape, eps=eps, elementwise_affine=affine)
    elif (
        case.op == "groupnorm"
        and not case.residual
        and case.act in ("none", "silu")
        and affine
        and len(case.shape) == 4
    ):
        from apex.contrib.group_norm import GroupNorm

        known = getattr(GroupNorm, "SUPPORTED_CHANNELS", ())
        if not case.channels_last or (known and case.shape[1] not in known):
            raise LeftOut("it hands this to PyTorch")
        module = GroupNorm(case.groups, case.shape[1], eps=eps, act="silu" if case.act == "silu" else "")
    else:
        raise LeftOut("it has no function for this")
    module = with_parameters(module, case, parameters, device)
    return Built(lambda x, residual: (module(x),), list(module.parameters()), note)


ISONORM = Implementation("isonorm", "isonorm", build_isonorm)
PEERS: Dict[str, Implementation] = {
    peer.name: peer
    for peer in (
        Implementation("torch", "torch", build_torch),
        Implementation("native", "native", build_native, needs_gpu=True),
        Implementation("compile", "compiled", build_compile),
        Implementation("liger", "liger", build_liger, True, "liger_kernel", "liger-kernel"),
        Implementation("quack", "quack", build_quack, True, "quack", "quack-kernels"),
        Implementation("apex", "apex", build_apex, True, "apex", "apex"),
    )
}
ABOUT = {
    "torch": "PyTorch's modules (BatchNorm on a GPU: cuDNN)",
    "native": "the same without cuDNN",
    "compiled": "torch.compile of the same formula",
    "liger": "Liger-Kernel",
    "quack": "quack",
    "apex": "NVIDIA apex",
}
