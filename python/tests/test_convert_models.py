"""convert on torchvision's models: what is converted and fused, and that outputs, gradients and statistics stay."""

from __future__ import annotations

import copy

import pytest
import torch
from blocks import assert_same, image, run, twins
from torch import nn

import isonorm.torch as iso
from isonorm.torch.convert import convert, plan_conversion, revert

try:
    import torchvision
except ImportError:
    torchvision = None

needs_torchvision = pytest.mark.skipif(torchvision is None, reason="torchvision is not installed")


def quiet(model):
    return convert(model, verbose=False)


# What torchvision's models have: norms converted, and what is fused.
MODELS = {
    "resnet18": (20, {"BatchNorm2d + relu": 9, "BatchNorm2d + add + relu": 8}, 3),
    "resnet50": (53, {"BatchNorm2d + relu": 33, "BatchNorm2d + add + relu": 16}, 4),
    "mobilenet_v2": (52, {}, 52),
    "mobilenet_v3_small": (34, {"BatchNorm2d + hardswish": 18, "BatchNorm2d + relu": 5}, 11),
    "densenet121": (121, {"BatchNorm2d + relu": 120}, 1),
    "efficientnet_b0": (49, {"BatchNorm2d + silu": 33}, 16),
    "regnet_y_400mf": (53, {"BatchNorm2d + relu": 33}, 20),
    "googlenet": (57, {"BatchNorm2d + relu": 57}, 0),
    "inception_v3": (94, {"BatchNorm2d + relu": 94}, 0),
    "shufflenet_v2_x1_0": (56, {"BatchNorm2d + relu": 37}, 19),
}
#: These are run too; the others have no block that is not in one of them.
SIZES = {
    "resnet50": 40,
    "mobilenet_v3_small": 40,
    "densenet121": 32,
    "efficientnet_b0": 32,
    "regnet_y_400mf": 32,
    "googlenet": 40,
    "shufflenet_v2_x1_0": 40,
}


def vision(name):
    keywords = {"init_weights": False, "aux_logits": False} if name in ("googlenet", "inception_v3") else {}
    return getattr(torchvision.models, name)(weights=None, **keywords)


@needs_torchvision
@pytest.mark.parametrize("name", MODELS)
def test_what_is_fused_in_models(name):
    report = plan_conversion(vision(name))
    norms, fused, plain = MODELS[name]
    assert (report.done["BatchNorm2d"], dict(report.fused), report.plain) == (norms, fused, plain)
    if name == "mobilenet_v2":
        reasons = {reason for _, reason in report.left}
        assert reasons == {"not fused, since the activation ReLU6 is not one of isonorm's"}
    else:
        assert not report.left


@needs_torchvision
@pytest.mark.parametrize("name", SIZES)
def test_models_compute_the_same(name):
    theirs = vision(name).double()
    ours = quiet(copy.deepcopy(theirs))
    x = image(4, 3, SIZES[name], SIZES[name])
    for training in (True, False):
        results = []
        for model in (theirs, ours):
            # Dropout and stochastic depth draw the same numbers.
            torch.manual_seed(1)
            results.append(run(model.train(training), x))
        for key, expected in results[0].items():
            if expected.is_floating_point():
                # Deep networks amplify: errors are up to 1e-12 of the largest gradients here, mistakes of their size.
                scale = max(expected.abs().max().item(), 1.0)
                assert (results[1][key] - expected).abs().max().item() <= 1e-9 * scale, (key, training)
            else:
                assert torch.equal(results[1][key], expected), (key, training)


@needs_torchvision
def test_frozen_batch_norms():
    frozen = torchvision.ops.FrozenBatchNorm2d

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn, self.relu = nn.Conv2d(4, 4, 1), frozen(4), nn.ReLU()

        def forward(self, x):
            return self.relu(self.bn(self.conv(x)) + x)

    model = Block()
    assert plan_conversion(model).fused == {"FrozenBatchNorm2d + add + relu": 1}
    theirs, ours = twins(model)
    quiet(ours)
    assert type(ours.bn) is iso.FrozenBatchNorm2d
    assert_same(theirs, ours, image())
    assert theirs.load_state_dict(ours.state_dict(), strict=True)
    assert type(revert(ours).bn) is frozen


@needs_torchvision
def test_layer_norm_of_channels_is_listed():
    report = plan_conversion(torchvision.models.convnext_tiny(weights=None))
    assert report.done == {"LayerNorm": 18}
    assert {reason for _, reason in report.left} == {"a subclass of LayerNorm: LayerNorm2d"} and len(report.left) == 5
