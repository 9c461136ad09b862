"""Removes BatchNorms from a trained model by rewriting the layers in front of them."""

from __future__ import annotations

import copy
from collections import Counter

from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from . import _fuse, _fused
from ._classes import known, own_norm
from ._patterns import is_plain
from ._purity import Refused, names_of_values
from ._report import Report
from ._rescale import LAYERS, rescaled
from ._trace import inputs, trace

__all__ = ["fold"]


def fold(model: nn.Module, *, verbose: bool = True) -> nn.Module:
    """A copy of the model for inference, whose BatchNorms are folded into the layers in front of them.

    A BatchNorm with running statistics is folded into the Conv1d, 2d or 3d, ConvTranspose1d, 2d or 3d (of any groups),
    or Linear whose result it alone reads:

        W' = W·γ/√(σ² + eps)        b' = (b − μ)·γ/√(σ² + eps) + β

    computed in float64 and rounded once to the layer's type. An `nn.Identity` takes the norm's place. The copy is in
    evaluation mode, and what `convert` had fused is separated in it. BatchNorms that cannot be folded stay.

    Layer and norm have to be called by the forward of the module that owns them, and by nobody else. Where the forward
    of another module of the model takes them out and calls them itself, they stay; code outside of the model that does
    so would get the normalized result from the layer.

    verbose: Print what was folded and what was left, and why.
    """
    model = copy.deepcopy(model).eval()
    for module in model.modules():
        if _fused.is_fused(module):
            _fuse.separate(module)
    norms = {m: path for path, m in model.named_modules() if isinstance(m, _BatchNorm) or _is_batch_norm(m)}
    search = _Search(model)
    for module in list(model.modules()):
        if _fuse.owns_norms(module, _is_batch_norm):
            search.fold_in(module)
    report = Report(verb="folded")
    left = set(model.modules())
    for norm, path in norms.items():
        if norm not in left:
            report.done[type(norm).__name__] += 1
        elif not _is_batch_norm(norm):
            what = f"is a {type(norm).__name__}"
            if getattr(norm, "activation", None) is not None:
                what = "has an activation of its own"
            report.leave(path, f"it {what}")
        else:
            unknown = "no convolution or linear layer is known to be in front of it"
            report.leave(path, search.reasons.get(norm, unknown))
    if verbose:
        print(report)
    return model


class _Checked(nn.Identity):
    """In the place of a norm that did not check whether its channels are those of the layer in front: of `dims`
    dimensions they are."""

    def __init__(self, dims: int):
        super().__init__()
        self.dims = dims

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != self.dims:
            raise ValueError(f"the BatchNorm that was folded here expected {self.dims}D input (got {input.dim()}D)")
        return input


#: The dimensions of what the layers make, and the norm of that. BatchNorm2d and 3d check the dimensions themselves.
_DIMENSIONS = {nn.Linear: (2, nn.BatchNorm1d), nn.Conv1d: (3, nn.BatchNorm1d), nn.ConvTranspose1d: (3, nn.BatchNorm1d)}
_DIMENSIONS.update({layer: (4, nn.BatchNorm2d) for layer in (nn.Conv2d, nn.ConvTranspose2d)})
_DIMENSIONS.update({layer: (5, nn.BatchNorm3d) for layer in (nn.Conv3d, nn.ConvTranspose3d)})


def _torchs(norm: nn.Module) -> type | None:
    """The class of a norm: its own, or torch's or torchvision's for one of isonorm's without an activation."""
    if own_norm(norm) is None:
        return type(norm)
    return {ours: theirs for theirs, ours in known().items()}.get(type(norm), type(norm))


def _is_frozen(norm: nn.Module) -> bool:
    return _torchs(norm).__name__ == "FrozenBatchNorm2d" and (type(norm) in known() or own_norm(norm) is not None)


def _is_batch_norm(module: nn.Module) -> bool:
    """Whether it is a BatchNorm of torch, torchvision or isonorm, and nothing else besides."""
    return _torchs(module) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm) or _is_frozen(module)


class _Search:
    """Finds what can be folded, and folds it; keeps why norms were not."""

    def __init__(self, model: nn.Module):
        self.reasons: dict[nn.Module, str] = {}
        #: How many places of the model each module has.
        self.places = Counter(child for module in model.modules() for child in module._modules.values())
        #: Modules whose parts are called by others than their own forward.
        self.entered: set[nn.Module] = set()
        for module in model.modules():
            self._look_for_entered(module)

    def _look_for_entered(self, module: nn.Module) -> None:
        try:
            _fuse.check(module, type(module))
            found = trace(module, type(module), training=False)
        except Refused as refused:
            found = refused
            # What the trace did not reach has to be read.
            for name in names_of_values(type(module)) & set(module._modules):
                self._enter(module._modules[name])
        self.entered.update(found.entered)

    def _enter(self, child: nn.Module | None) -> None:
        if type(child) is nn.Sequential:
            self.entered.add(child)
        elif child is not None and type(child) not in (nn.ModuleList, nn.ModuleDict):
            self.entered.update(child.modules())

    def fold_in(self, module: nn.Module) -> None:
        """Folds what the module's own forward shows to be foldable."""
        try:
            if module in self.entered:
                raise Refused("others call its parts")
            _fuse.check(module, type(module))
            if inputs(type(module).forward)[1]:
                # The trace has their defaults; with others the norm may not be called.
                raise Refused("its forward has optional arguments")
            found = trace(module, type(module), training=False)
            graphs = [found.graph]
            if found.asks:
                graphs.append(trace(module, type(module), training=False, kind=list).graph)
        except Refused as refused:
            for child in module.modules():
                if _is_batch_norm(child):
                    self.reasons.setdefault(child, f"the module around it is left, since {refused}")
            return
        calls = [[node for node in graph.nodes if node.op == "call_module"] for graph in graphs]
        times = [Counter(module.get_submodule(node.target) for node in nodes) for nodes in calls]
        for target in dict.fromkeys(node.target for node in calls[0]):
            norm = module.get_submodule(target)
            if not _is_batch_norm(norm):
                continue
            try:
                nodes = [(node, count) for found, count in zip(calls, times) for node in found if node.target == target]
                fronts = [self._front(module, node, count) for node, count in nodes]
                if len(fronts) != len(graphs) or len(set(fronts)) != 1:
                    raise Refused("the layer in front depends on the type of the input")
                self._fold(module, target, fronts[0])
            except Refused as refused:
                self.reasons[norm] = str(refused)

    def _front(self, module: nn.Module, call: fx.Node, times: Counter) -> nn.Module:
        """The layer that the norm can be folded into."""
        norm = module.get_submodule(call.target)
        front = call.args[0] if len(call.args) == 1 and not call.kwargs else None
        is_call = isinstance(front, fx.Node) and front.op == "call_module"
        layer = module.get_submodule(front.target) if is_call else None
        if not isinstance(layer, LAYERS):
            raise Refused("there is no convolution or linear layer in front of it")
        if type(layer) not in LAYERS:
            raise Refused(f"the layer in front is a {type(layer).__name__}")
        if not is_plain(layer):
            raise Refused("the layer in front has hooks or a forward of its own")
        if not is_plain(norm):
            raise Refused("it has hooks or a forward of its own")
        if len(front.users) != 1:
            raise Refused("others read the result of the layer in front")
        if times[layer] != 1 or self.places[layer] != 1:
            raise Refused("the layer in front is used in several places")
        if times[norm] != 1:
            raise Refused("it is called several times")
        return layer

    @staticmethod
    def _fold(module: nn.Module, target: str, layer: nn.Module) -> None:
        norm = module.get_submodule(target)
        dims, expected = _DIMENSIONS[type(layer)]
        cls = _torchs(norm)
        if cls not in (expected, nn.SyncBatchNorm) and not (_is_frozen(norm) and dims == 4):
            raise Refused(f"the layer in front is a {type(layer).__name__}")
        weight, bias = rescaled(layer, norm)
        learns = layer.weight.requires_grad
        layer.weight, layer.bias = nn.Parameter(weight, learns), nn.Parameter(bias, learns)
        place = nn.Identity() if cls in (nn.BatchNorm2d, nn.BatchNorm3d) else _Checked(dims)
        parent, _, name = target.rpartition(".")
        module.get_submodule(parent)._modules[name] = place.eval()
