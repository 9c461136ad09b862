"""fold: a model without its BatchNorms computes what it computed with them, and what cannot be folded stays."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from blocks import Basic, Net, Small, image, relative, settle, twins
from torch import nn

import isonorm.torch as iso
from isonorm.torch.convert import convert
from isonorm.torch.fold import fold

try:
    import torchvision
except ImportError:
    torchvision = None

needs_torchvision = pytest.mark.skipif(torchvision is None, reason="torchvision is not installed")


def quiet(model):
    return fold(model, verbose=False)


def norms(model):
    return [m for m in model.modules() if "BatchNorm" in type(m).__name__ or isinstance(m, nn.BatchNorm2d)]


def reasons(model, capsys):
    """What is printed of norms that are left."""
    folded = fold(model)
    lines = capsys.readouterr().out.splitlines()
    assert norms(folded), "nothing is left"
    return [line.strip() for line in lines[lines.index("  left alone:") + 1 :]]


PAIRS = [
    (nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6), (2, 4, 9)),
    (nn.Conv2d(4, 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6), (2, 4, 7, 5)),
    (
        nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2, padding_mode="reflect"),
        nn.BatchNorm2d(6, eps=0.1),
        (2, 4, 7, 5),
    ),
    (nn.Conv3d(4, 6, 2), nn.BatchNorm3d(6, affine=False), (2, 4, 3, 4, 3)),
    (nn.ConvTranspose1d(4, 6, 3), nn.BatchNorm1d(6), (2, 4, 5)),
    (nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), nn.BatchNorm2d(6), (2, 4, 5, 4)),
    (nn.ConvTranspose2d(6, 6, 3, groups=6, bias=False), nn.BatchNorm2d(6), (2, 6, 5, 4)),
    (nn.ConvTranspose3d(6, 9, 2, groups=3), nn.BatchNorm3d(9), (2, 6, 3, 2, 2)),
    (nn.Linear(4, 6), nn.BatchNorm1d(6), (5, 4)),
    (nn.Linear(4, 6, bias=False), nn.BatchNorm1d(6), (5, 4)),
    (nn.Conv2d(4, 6, 1), nn.SyncBatchNorm(6), (2, 4, 3, 3)),
    (nn.Conv2d(4, 6, 1), iso.FrozenBatchNorm2d(6), (2, 4, 3, 3)),
    (nn.Conv2d(4, 6, 1), iso.BatchNorm2d(6), (2, 4, 3, 3)),
]


@pytest.mark.parametrize("layer, norm, shape", PAIRS, ids=[f"{i}-{type(p[0]).__name__}" for i, p in enumerate(PAIRS)])
def test_pairs(layer, norm, shape):
    """An element is a sum of at most 36 products of values around one. Folding rounds each factor once more, and sums
    in another order: 36·(2 + 36)·u = 1.5e-13 at the very most."""
    model, _ = twins(nn.Sequential(copy.deepcopy(layer), copy.deepcopy(norm)))
    x = image(*shape)
    folded = quiet(model)
    assert not norms(folded) and isinstance(folded[1], nn.Identity) and not folded.training
    expected = model.eval()(x)
    torch.testing.assert_close(folded(x), expected, rtol=1e-13, atol=1e-13)
    assert len(norms(model)) == 1, "the model itself stays"
    with torch.no_grad():
        model[1].running_mean.add_(1)
    assert (folded(x) - model(x)).abs().max() > 1e-3, "the tolerance sees the statistics"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounds_once(dtype):
    """Each weight is the exact product, rounded to its type: exactly what float64 gives."""
    model = settle(nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6))).to(dtype)
    for norm_type in (dtype, torch.float32):
        model[1].to(norm_type)
        folded, (layer, norm) = quiet(model), copy.deepcopy(model).double()
        scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        expected = layer.weight.clone()
        for channel in range(6):
            group, inner = divmod(channel, 3)
            expected[2 * group : 2 * group + 2, inner] *= scale[channel]
        assert torch.equal(folded[0].weight, expected.to(dtype))
        bias = (layer.bias - norm.running_mean) * scale + norm.bias
        assert torch.equal(folded[0].bias, bias.to(dtype)) and folded[0].bias.dtype == dtype


def test_a_whole_model(capsys):
    model, _ = twins(Small())
    folded = fold(model)
    assert capsys.readouterr().out == "isonorm folded 6 BatchNorm2d\n"
    x = image(2, 3, 14, 14)
    torch.testing.assert_close(folded(x), model.eval()(x), rtol=1e-12, atol=1e-12)
    converted = convert(copy.deepcopy(model), verbose=False)
    again = quiet(converted)
    assert not norms(again) and type(again.block1) is Basic and type(converted.block1) is not Basic
    torch.testing.assert_close(again(x), model(x), rtol=1e-12, atol=1e-12)
    # The parameters are the copy's own, and the state dict has them under the same names.
    assert {n for n, _ in folded.named_parameters()} >= {"block1.conv1.weight", "block1.conv1.bias"}
    assert model.block1.conv1.bias is None


def test_float32_is_as_exact_as_the_model():
    model = settle(Small()).eval()
    x = torch.randn(8, 3, 20, 20)
    exact = copy.deepcopy(model).double()(x.double())
    # One rounding of each weight more: of the size of those that the convolutions make.
    assert relative(quiet(model)(x), exact) <= 3 * relative(model(x), exact) + 2**-24


def test_lists_of_modules_and_types_of_inputs():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv2d(4, 4, 1) for _ in range(2))
            self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(2))

        def forward(self, x):
            if isinstance(x, torch.Tensor):
                x = [x, 2]
            x = x[0] * x[1]
            for conv, norm in zip(self.convs, self.norms):
                x = torch.relu(norm(conv(x)))
            return x

    model, _ = twins(Model())
    folded = quiet(model)
    assert not norms(folded)
    x = image()
    torch.testing.assert_close(folded(x), model.eval()(x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(folded([x, 3]), model([x, 3]), rtol=1e-12, atol=1e-12)


def net(forward, **parts):
    model = type("Given", (Net,), {"forward": forward, "__module__": __name__})()
    for name, part in parts.items():
        setattr(model, name, part)
    return settle(model)


def both(self, x):
    y = self.conv(x)
    return self.bn(y) + y


def layer_twice(self, x):
    return self.bn(self.conv(self.conv(x)))


def norm_twice(self, x):
    return self.bn(self.conv(self.bn(x)))


def norm_behind_two(self, x):
    return self.bn(self.conv2(self.bn(self.conv(x))))


def plain(self, x):
    return F.relu(self.bn(self.conv(x)))


def with_act_between(self, x):
    return self.bn(self.act(self.conv(x)))


def norm_first(self, x):
    return self.conv(self.bn(x))


def control_flow(self, x):
    y = self.conv(x)
    return self.bn(y) if x.sum() > 0 else y


def optional(self, x, norm=True):
    y = self.conv(x)
    return self.bn(y) if norm else y


def by_type(self, x):
    y = self.conv(x[0] if isinstance(x, list) else x)
    return y if isinstance(x, list) else self.bn(y)


def hooked(which):
    model = net(plain)
    getattr(model, which).register_forward_hook(lambda m, args, y: y)
    return model


def with_norm(change):
    model = net(plain)
    with torch.no_grad():
        change(model.bn)
    return model


def subclassed():
    return net(plain, conv=type("MyConv", (nn.Conv2d,), {})(4, 4, 1))


def parametrized():
    model = net(plain)
    nn.utils.parametrize.register_parametrization(model.conv, "weight", nn.Identity())
    return model


def shared_layer():
    model = nn.Sequential(net(plain), net(plain))
    model[1].conv = model[0].conv
    return model


def infinite(norm):
    norm.running_mean[1] = torch.inf


def without_variance(norm):
    norm.running_var.zero_()
    norm.eps = 0.0


def too_large(norm):
    norm.running_var.zero_()
    norm.weight.fill_(3e38)


REFUSED = [
    (lambda: net(both), "others read the result of the layer in front: bn"),
    (lambda: net(layer_twice), "the layer in front is used in several places: bn"),
    (shared_layer, "the layer in front is used in several places: 0.bn, 1.bn"),
    (lambda: net(norm_twice), "there is no convolution or linear layer in front of it: bn"),
    (lambda: net(norm_behind_two), "it is called several times: bn"),
    (lambda: net(with_act_between), "there is no convolution or linear layer in front of it: bn"),
    (lambda: net(norm_first), "there is no convolution or linear layer in front of it: bn"),
    (lambda: net(control_flow), "the module around it is left, since its control flow depends on its input: bn, bn2"),
    (lambda: net(optional), "the module around it is left, since its forward has optional arguments: bn, bn2"),
    (lambda: net(by_type), "the layer in front depends on the type of the input: bn"),
    (lambda: hooked("conv"), "the layer in front has hooks or a forward of its own: bn"),
    (lambda: hooked("bn"), "it has hooks or a forward of its own: bn"),
    (subclassed, "the layer in front is a MyConv: bn"),
    (parametrized, "the layer in front is a ParametrizedConv2d: bn"),
    (lambda: net(plain, bn=nn.BatchNorm2d(4, track_running_stats=False)), "it has no running statistics: bn"),
    (lambda: net(plain, bn=iso.BatchNorm2d(4, activation="relu")), "it has an activation of its own: bn"),
    (lambda: net(plain, bn=type("MyNorm", (nn.BatchNorm2d,), {})(4)), "it is a MyNorm: bn"),
    (lambda: net(plain, bn=nn.BatchNorm1d(4)), "the layer in front is a Conv2d: bn"),
    (lambda: net(plain, bn=nn.BatchNorm2d(5)), "its running_mean has shape (5,), and the layer in front 4 outputs: bn"),
    (lambda: with_norm(lambda n: n.running_var.neg_()), "that has no reciprocal root: bn"),
    (lambda: with_norm(without_variance), "with eps 0.0 that has no reciprocal root: bn"),
    (lambda: with_norm(lambda n: setattr(n, "eps", -1.0)), "its eps is -1.0, expected a finite number"),
    (lambda: with_norm(infinite), "its running_mean has a value that is not finite: bn"),
    (lambda: with_norm(too_large), "of the layer in front would have a value that is not finite in torch.float32: bn"),
    (lambda: net(plain, bn=nn.BatchNorm2d(4).half()), "is torch.float16, and the weight of the layer in front torch."),
    (lambda: net(plain).to("meta"), "the weight of the layer in front is torch.float32 on meta: bn"),
]


@pytest.mark.parametrize("make, reason", REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_refused(make, reason, capsys):
    torch.manual_seed(5)
    model = make().eval()
    state = {name: t.clone() for name, t in model.state_dict().items()}
    lines = reasons(model, capsys)
    assert any(reason in line for line in lines), lines
    folded = quiet(model)
    for name, t in folded.state_dict().items():
        assert t.is_meta or torch.equal(t.nan_to_num(), state[name].nan_to_num()), "it was changed in part"


def test_others_that_call_the_parts():
    """A model that looks into a sequence would find another result behind the layer."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU())
            self.whole = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU())

        def forward(self, x):
            found = []
            for layer in self.features:
                x = layer(x)
                found.append(x)
            return [*found, self.whole(x)]

    class Reads(Model):
        def forward(self, x):
            return self.features[0](x) * self.features[0].bias.view(1, -1, 1, 1) + self.whole(x)

    class Late(Model):
        def forward(self, x):
            y = self.whole(x)
            if y.sum() > -1e9:
                y = y + self.features[0](x)
            return y

    for cls in (Model, Reads, Late):
        model, _ = twins(cls())
        folded = quiet(model)
        assert [name for name, m in folded.named_modules() if isinstance(m, nn.BatchNorm2d)] == ["features.1"]
        x = image()
        for found, expected in zip(folded(x), model.eval()(x)):
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_inputs_that_the_norm_took_otherwise_are_refused():
    """BatchNorm1d takes dimension 1 for channels: of a sequence that is not what the linear layer made."""
    model = settle(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))).eval()
    folded = quiet(model)
    model(torch.randn(2, 4, 3))
    with pytest.raises(ValueError, match="expected 2D input"):
        folded(torch.randn(2, 4, 3))
    model = settle(nn.Sequential(nn.Conv1d(3, 4, 1), nn.BatchNorm1d(4))).eval()
    with pytest.raises(ValueError, match="expected 3D input"):
        quiet(model)(torch.randn(3, 4))


def test_weights_that_are_shared_stay_with_the_others():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    model, _ = twins(model)
    x = torch.randn(3, 4, dtype=torch.float64)
    torch.testing.assert_close(quiet(model)(x), model.eval()(x), rtol=1e-12, atol=1e-12)


def test_layouts_stay():
    model = settle(nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)))
    model.to(memory_format=torch.channels_last)
    assert quiet(model)[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_folded_models_copy_and_compile():
    import pickle

    model, _ = twins(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU()))
    folded = pickle.loads(pickle.dumps(copy.deepcopy(quiet(model))))
    x = torch.randn(3, 4, dtype=torch.float64)
    torch._dynamo.reset()
    found = torch.compile(folded, fullgraph=True, backend="eager")(x)
    torch.testing.assert_close(found, model.eval()(x), rtol=1e-12, atol=1e-12)


MODELS = {"resnet18": 0, "mobilenet_v3_small": 0, "densenet121": 62, "shufflenet_v2_x1_0": 0}


@needs_torchvision
@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    model = settle(getattr(torchvision.models, name)(weights=None)).double().eval()
    folded = quiet(convert(copy.deepcopy(model), verbose=False))
    assert len(norms(folded)) == MODELS[name]
    x = image(2, 3, 40, 40)
    with torch.no_grad():
        # Some hundred roundings deep, amplified by the layers behind them.
        torch.testing.assert_close(folded(x), model(x), rtol=1e-9, atol=1e-9)


@needs_torchvision
def test_torchvisions_frozen_batch_norms():
    frozen = torchvision.ops.FrozenBatchNorm2d(6)
    model, _ = twins(nn.Sequential(nn.Conv2d(4, 6, 1), frozen))
    folded = quiet(model)
    assert not norms(folded)
    torch.testing.assert_close(folded(x := image()), model(x), rtol=1e-12, atol=1e-12)
