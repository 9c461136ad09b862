"""How far a correctly rounded computation may be from the exact result, element by element.

Everything is derived from the types (their unit roundoff u, half the distance from 1 to the next number), the length of
the reductions and the conditioning of the data, in first order, from the exact intermediate values:

- a sum of n terms t is off by at most `(4 + log2 n)·u·Σ|t|` when it is made pairwise, n·u·Σ|t| in any order;
- the mean is stored in the accumulator's type, so it is off by u·|mean| besides: that is what makes data far from zero
  (mean/std = 10⁶) hard, and no implementation that keeps its mean in f32 escapes it;
- an error of the pre-activation goes through the activation with its slope, in the gradient with its curvature.
"""

from __future__ import annotations

import math

import torch

from problems import Problem

UNIT_ROUNDOFF = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}
SMALLEST = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "f64": 2.0**-1074}

# Largest slope and largest curvature of each activation (away from its kinks).
SLOPE = {
    "none": 1.0,
    "relu": 1.0,
    "leaky_relu": 1.0,
    "silu": 1.1,
    "gelu": 1.13,
    "gelu_tanh": 1.13,
    "sigmoid": 0.25,
    "tanh": 1.0,
    "hardswish": 1.5,
}
CURVATURE = {"silu": 0.5, "gelu": 0.8, "gelu_tanh": 0.8, "sigmoid": 0.1, "tanh": 0.77, "hardswish": 0.34}
KINKS = {"relu": [0.0], "leaky_relu": [0.0], "hardswish": [-3.0, 3.0]}

# Roundings of an elementary function, in units of u of its result's natural scale.
ELEMENTARY = 4.0


def reduction(problem: Problem, n: int) -> float:
    """Roundings that a term of a sum of n goes through."""
    # Data of f64 are compared with PyTorch's sums, which are as exact as ours and of an order that is its own.
    return n if problem.dtype == "f64" else 4.0 + math.log2(max(n, 1))


class Exact:
    """The intermediate values of a problem in f64, and the errors that its types allow them."""

    def __init__(self, problem: Problem, x, weight, bias, residual, mean, var):
        self.problem = problem
        self.u = UNIT_ROUNDOFF["f64" if problem.dtype == "f64" else "f32"]
        self.c = reduction(problem, problem.group_size)
        # Two computations are compared where there is no wider type for the reference.
        self.sides = 2.0 if problem.dtype == "f64" else 1.0

        u, c = self.u, self.c
        centred = problem.op != "rmsnorm"
        if problem.uses_running:
            mean, var = problem.spread(mean).expand_as(x), problem.spread(var).expand_as(x)
            self.mean_error = torch.zeros_like(x)
            var_error = torch.zeros_like(x)
        else:
            mean = problem.group_mean(x) if centred else torch.zeros_like(x)
            var = problem.group_mean((x - mean) ** 2)
            distance = (x - mean).abs()
            # Sums are made about a shift, which is an element of the group; PyTorch's in f64 about zero.
            range_ = problem.group_max(distance if self.sides == 1 else x.abs())
            self.mean_error = (2 * u * mean.abs() + c * u * (problem.group_mean(distance) + range_)) * centred
            var_error = c * u * var + self.mean_error**2
            if self.sides > 1:
                # Welford's recurrence, which PyTorch uses, passes the mean's error on in first order.
                var_error += 2 * var.sqrt() * self.mean_error
        self.mean, self.var, self.var_error = mean, var, var_error
        self.rstd = (var + problem.resolved_eps).rsqrt()
        self.rstd_error = 0.5 * var_error * self.rstd**2 + 2 * u  # relative
        self.xhat = (x - mean) * self.rstd
        # x − mean cancels: a constant group has xhat = 0, and what is left of the mean's rounding.
        shift = self.mean_error + (u * mean.abs() if problem.uses_running and centred else 0)
        self.xhat_error = self.xhat.abs() * (self.rstd_error + 3 * u) + shift * self.rstd

        self.weight = torch.ones_like(x) if weight is None else problem.spread(weight).expand_as(x)
        addends = [problem.spread(bias).expand_as(x)] if bias is not None else []
        addends += [residual] if residual is not None else []
        scaled = self.weight * self.xhat
        self.z = scaled + sum(addends)
        magnitude = scaled.abs() + sum(a.abs() for a in addends)
        self.z_error = self.weight.abs() * self.xhat_error + 2 * u * magnitude

    def near_kink(self):
        """Where rounding may put the pre-activation on the other side of a kink of the activation."""
        near = torch.zeros_like(self.z, dtype=torch.bool)
        for kink in KINKS.get(self._act, []):
            near |= (self.z - kink).abs() <= 4 * self.sides * self.z_error
        return near

    @property
    def _act(self) -> str:
        return self.problem.act.partition(":")[0]

    def _stored(self, error, value, dtype: str):
        """The error after rounding to the type of the result."""
        return self.sides * (error + UNIT_ROUNDOFF[dtype] * value.abs() + SMALLEST[dtype])

    def y_bound(self, y):
        """Of the output."""
        slope = max(SLOPE[self._act], abs(float(self.problem.act.partition(":")[2] or 0)))
        error = slope * self.z_error
        if self._act != "none":
            scale = 1.0 if self._act in ("sigmoid", "tanh") else self.z.abs()
            error = error + ELEMENTARY * self.u * scale
        return self._stored(error, y, self.problem.dtype)

    def running_bounds(self, mean, var, old_mean, old_var, momentum: float | None, steps: int):
        """Of the running statistics: each step rounds twice, and the past fades with the momentum."""
        roundings = 2 * min(steps, steps if momentum is None else 1 / max(momentum, 1e-300))
        u = UNIT_ROUNDOFF[self.problem.param]
        n = self.problem.group_size
        channels = lambda t: t.movedim(1, -1).reshape(-1, t.shape[1]).amax(0)
        var_error = channels(self.var_error + 2 * self.u * self.var) * (n / max(n - 1, 1))
        scale = lambda now, old: u * (roundings + 1) * torch.maximum(now.abs(), old.abs())
        # The statistics of other batches than the last are as hard as its own, within a factor.
        return (
            self.sides * (2 * channels(self.mean_error) + scale(mean, old_mean)),
            self.sides * (2 * var_error + scale(var, old_var)),
        )

    def gradient_bounds(self, dy, slope_at_z, dx, dweight, dbias):
        """Of dx, dweight, dbias and dresidual, given the activation's slope at each pre-activation."""
        p, u = self.problem, self.u
        g = dy * slope_at_z
        curvature = CURVATURE.get(self._act, 0.0)
        g_error = dy.abs() * curvature * self.z_error + 2 * u * g.abs()
        if self._act != "none":
            g_error = g_error + ELEMENTARY * u * dy.abs() * SLOPE[self._act]

        w, xhat = self.weight.abs(), self.xhat.abs()
        wg = w * g.abs()
        error = w * g_error + 3 * u * wg
        if not p.uses_running:
            if p.op != "rmsnorm":
                m1 = p.group_mean(wg)
                error = error + p.group_mean(w * g_error) + (self.c + 3) * u * m1
            m2 = p.group_mean(self.weight * g * self.xhat)
            m2_scale = p.group_mean(wg * xhat)
            m2_error = p.group_mean(w * g_error * xhat + wg * self.xhat_error) + self.c * u * m2_scale
            error = error + xhat * m2_error + self.xhat_error * m2.abs() + 3 * u * xhat * m2_scale
        dx_error = self.rstd * error + (self.rstd_error + 2 * u) * dx.abs()

        sum_error = reduction(p, dy.numel() // max(math.prod(p.param_shape), 1)) * u
        dweight_error = p.param_sum(g_error * xhat + g.abs() * self.xhat_error + sum_error * g.abs() * xhat)
        dbias_error = p.param_sum(g_error + sum_error * g.abs())
        return {
            "dx": self._stored(dx_error, dx, p.dtype),
            "dweight": None if dweight is None else self._stored(dweight_error, dweight, p.param),
            "dbias": None if dbias is None else self._stored(dbias_error, dbias, p.param),
            "dresidual": self._stored(g_error, g, p.dtype) if p.residual else None,
        }
