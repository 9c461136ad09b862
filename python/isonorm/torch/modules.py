"""torch.nn's normalization modules with isonorm's kernels, an activation and a residual.

Each is a subclass of torch's class of the same name: the same constructor, attributes and state dict. Besides, `activation` (a keyword of the
constructor and an attribute) names what is applied to the result, and a call may bring a `residual` that is added before:
`activation(norm(x) + residual)`. The state of an instance is torch's alone, so that to convert one is to change its class.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.fx import Proxy

from isonorm import _core

from . import _activations, _checks, _native
from . import functional as F
from ._normalize import Notes, normalize
from ._problem import Call

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "FrozenBatchNorm2d",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "RMSNorm",
]


class _OwnActivation:
    """In the place of an activation that a call does not give: the module's."""

    def __repr__(self) -> str:
        return "the module's"


OWN = _OwnActivation()

#: The attribute of a module that holds what it found out about its last call.
SITE = "_isonorm_site"


class _Fused:
    """What every module here has besides torch's."""

    #: What is applied to the result; see `isonorm.torch.functional` for the names.
    activation: str | None = None

    def __init__(self, *args, activation: str | None = None, **kwargs):
        _activations.function(activation)
        super().__init__(*args, **kwargs)
        if activation is not None:
            self.activation = activation

    def extra_repr(self) -> str:
        text = super().extra_repr()
        return text if self.activation is None else f"{text}, activation={self.activation!r}"

    def _run(self, config: tuple, x: Tensor, residual, affine, running_mean=None, running_var=None, factor=0.0):
        """`normalize(Call(*config), …)`, by a short way if the last call was like this one. `affine` are weight and
        bias."""
        weight, bias = affine
        if is_compiling():
            return normalize(Call(*config), x, weight, bias, residual, running_mean, running_var, factor)
        site = self.__dict__.get(SITE)
        if site is None:
            site = self.__dict__[SITE] = _core.Site()
        y = site.again(config, x, weight, bias, residual, running_mean, running_var, factor)
        if y is not None:
            return y
        self._check(config, x)
        notes = Notes(site, config)
        return normalize(Call(*config), x, weight, bias, residual, running_mean, running_var, factor, notes)

    def _check(self, config: tuple, x: Tensor) -> None:
        """Refuses an input as torch does."""
        _activations.function(config[3])

    def _affine(self) -> tuple[Tensor | None, Tensor | None]:
        """Weight and bias. Not by their names, which torch looks up slowly, unless something took their places."""
        parameters = self._parameters
        try:
            return parameters["weight"], parameters["bias"]
        except KeyError:
            return self.weight, self.bias

    def _traced(self, input: Proxy, **arguments) -> Proxy:
        """The call as one node of a torch.fx graph, as torch's own modules are."""
        arguments = {name: value for name, value in arguments.items() if value is not None and value is not OWN}
        tracer = input.tracer
        return tracer.create_proxy("call_module", tracer.path_of_module(self), (input,), arguments)


class _BatchNorm(_Fused):
    def forward(
        self, input: Tensor, residual: Tensor | None = None, *, activation: str | None | _OwnActivation = OWN
    ) -> Tensor:
        """`activation(norm(input) + residual)`; `activation` is the module's unless it is given."""
        if type(input) is Proxy:
            return self._traced(input, residual=residual, activation=activation)
        self._check_input_dim(input)
        return self._normalize(input, residual, self.activation if activation is OWN else activation)

    def _normalize(self, input: Tensor, residual: Tensor | None, activation: str | None) -> Tensor:
        # What torch does: momentum=None is a cumulative average; without running statistics those of the batch serve.
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            tracked = self._buffers["num_batches_tracked"]
            if tracked is not None:
                tracked.add_(1)
                if self.momentum is None:
                    factor = 1.0 / float(tracked)
        buffers = self._buffers
        mean, var = buffers["running_mean"], buffers["running_var"]
        training = self.training or (mean is None and var is None)
        if self.training and not self.track_running_stats:
            mean = var = None
        config = ("batchnorm", 0, self.eps, activation, training, False)
        return self._run(config, input, residual, self._affine(), mean, var, factor)

    def _check(self, config: tuple, x: Tensor) -> None:
        super()._check(config, x)
        _checks.batch_has_statistics(x, config[4])


class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """torch.nn.BatchNorm1d of `N, C` or `N, C, L`."""


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """torch.nn.BatchNorm2d of `N, C, H, W`."""


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """torch.nn.BatchNorm3d of `N, C, D, H, W`."""


class _InstanceNorm(_Fused):
    #: Dimensions of an input that has no batch; what torch's `_get_no_batch_dim` says, which not every version compiles.
    _no_batch_dim: int

    def forward(
        self, input: Tensor, residual: Tensor | None = None, *, activation: str | None | _OwnActivation = OWN
    ) -> Tensor:
        """`activation(norm(input) + residual)`; `activation` is the module's unless it is given."""
        if type(input) is Proxy:
            return self._traced(input, residual=residual, activation=activation)
        self._check_input_dim(input)
        channels = input.dim() - self._no_batch_dim
        if input.size(channels) != self.num_features:
            # torch warns or raises, as it sees fit.
            return _native.finish(
                super().forward(input), residual, self.activation if activation is OWN else activation
            )
        batched = input.dim() > self._no_batch_dim
        if not batched:
            input, residual = (None if t is None else t.unsqueeze(0) for t in (input, residual))
        activation = self.activation if activation is OWN else activation
        training = self.training or not self.track_running_stats
        config = ("instancenorm", 0, self.eps, activation, training, False)
        factor = 0.0 if self.momentum is None else self.momentum
        buffers = self._buffers
        running = (buffers["running_mean"], buffers["running_var"])
        y = self._run(config, input, residual, self._affine(), *running, factor)
        return y if batched else y.squeeze(0)

    def _check(self, config: tuple, x: Tensor) -> None:
        super()._check(config, x)
        _checks.instance_has_statistics(x, config[4])


class InstanceNorm1d(_InstanceNorm, nn.InstanceNorm1d):
    """torch.nn.InstanceNorm1d of `N, C, L` or `C, L`."""

    _no_batch_dim = 2


class InstanceNorm2d(_InstanceNorm, nn.InstanceNorm2d):
    """torch.nn.InstanceNorm2d of `N, C, H, W` or `C, H, W`."""

    _no_batch_dim = 3


class InstanceNorm3d(_InstanceNorm, nn.InstanceNorm3d):
    """torch.nn.InstanceNorm3d of `N, C, D, H, W` or `C, D, H, W`."""

    _no_batch_dim = 4


class GroupNorm(_Fused, nn.GroupNorm):
    """torch.nn.GroupNorm of `N, C, spatial`."""

    def forward(
        self, input: Tensor, residual: Tensor | None = None, *, activation: str | None | _OwnActivation = OWN
    ) -> Tensor:
        """`activation(norm(input) + residual)`; `activation` is the module's unless it is given."""
        if type(input) is Proxy:
            return self._traced(input, residual=residual, activation=activation)
        activation = self.activation if activation is OWN else activation
        config = ("groupnorm", self.num_groups, self.eps, activation, True, False)
        return self._run(config, input, residual, self._affine())


class LayerNorm(_Fused, nn.LayerNorm):
    """torch.nn.LayerNorm over the last dimensions."""

    def forward(
        self,
        input: Tensor,
        residual: Tensor | None = None,
        *,
        stream: Tensor | None = None,
        activation: str | None | _OwnActivation = OWN,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """`activation(norm(input) + residual)`. With `stream`, the residual stream of a pre-norm transformer, instead the pair of
        `activation(norm(input + stream))` and the new stream, `input + stream`."""
        if type(input) is Proxy:
            return self._traced(input, residual=residual, stream=stream, activation=activation)
        if stream is not None:
            residual = _stream(residual, stream)
        activation = self.activation if activation is OWN else activation
        config = ("layernorm", len(self.normalized_shape), self.eps, activation, True, stream is not None)
        return self._run(config, input, residual, self._affine())

    def _check(self, config: tuple, x: Tensor) -> None:
        super()._check(config, x)
        _checks.last_dimensions(x, self.normalized_shape, "layer_norm")


class RMSNorm(_Fused, nn.RMSNorm):
    """torch.nn.RMSNorm over the last dimensions."""

    def forward(
        self,
        x: Tensor,
        residual: Tensor | None = None,
        *,
        stream: Tensor | None = None,
        activation: str | None | _OwnActivation = OWN,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """As `LayerNorm.forward`."""
        if type(x) is Proxy:
            return self._traced(x, residual=residual, stream=stream, activation=activation)
        if stream is not None:
            residual = _stream(residual, stream)
        activation = self.activation if activation is OWN else activation
        config = ("rmsnorm", len(self.normalized_shape), self.eps, activation, True, stream is not None)
        return self._run(config, x, residual, self._affine())

    def _affine(self) -> tuple[Tensor | None, None]:
        try:
            return self._parameters["weight"], None
        except KeyError:
            return self.weight, None

    def _check(self, config: tuple, x: Tensor) -> None:
        super()._check(config, x)
        _checks.last_dimensions(x, self.normalized_shape, "rms_norm")


def _stream(residual, stream: Tensor) -> Tensor:
    """What is added before the norm."""
    if residual is not None:
        raise ValueError(
            "residual and stream were given; a residual is added behind the norm, a stream before it: expected one of them"
        )
    return stream


class FrozenBatchNorm2d(nn.Module):
    """torchvision's FrozenBatchNorm2d: statistics and parameters are buffers, and nothing of them is learned.

    Computes in one pass what torchvision computes in several: `activation((x − running_mean) / √(running_var + eps) · weight + bias + residual)`.
    """

    activation: str | None = None

    def __init__(self, num_features: int, eps: float = 1e-5, *, activation: str | None = None):
        _activations.function(activation)
        super().__init__()
        self.eps = eps
        if activation is not None:
            self.activation = activation
        self.register_buffer("weight", torch.ones(num_features))
        self.register_buffer("bias", torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def _load_from_state_dict(self, state_dict, prefix, *args):
        state_dict.pop(prefix + "num_batches_tracked", None)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(
        self, x: Tensor, residual: Tensor | None = None, *, activation: str | None | _OwnActivation = OWN
    ) -> Tensor:
        """`activation(norm(x) + residual)`; `activation` is the module's unless it is given."""
        if type(x) is Proxy:
            return _Fused._traced(self, x, residual=residual, activation=activation)
        if x.dim() != 4:
            raise ValueError(f"expected 4D input (got {x.dim()}D input)")
        return F.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            False,
            0.0,
            self.eps,
            activation=self.activation if activation is OWN else activation,
            residual=residual,
        )

    def __repr__(self) -> str:
        text = "" if self.activation is None else f", activation={self.activation!r}"
        return f"{type(self).__name__}({self.weight.shape[0]}, eps={self.eps}{text})"
