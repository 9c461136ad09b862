"""convert(fuse=True): which forwards are fused, that the results stay, and that a change of the module afterwards is honoured."""

from __future__ import annotations

import copy
import random

import pytest
import torch
import torch.nn.functional as F
from blocks import SMALL_FUSED, Basic, Net, Small, assert_same, image, log_calls, run, settle, twins
from torch import nn

from isonorm.torch.convert import convert, plan_conversion, revert


def net(forward, act=None, base=Net):
    """A module of a class of its own with that forward."""
    return type("Given", (base,), {"forward": forward, "__module__": __name__})(act)


def fuse_twins(model):
    """The model in float64, and a converted copy."""
    theirs, ours = twins(model)
    return theirs, convert(ours, verbose=False)


# Forwards that are fused: the activation as module, function and method, and the addition in all its ways.
def act_module(self, x):
    return self.act(self.bn(self.conv(x)))


def add_operator(self, x):
    return self.act(self.bn(self.conv(x)) + x)


def add_swapped(self, x):
    return torch.relu(x + self.bn(self.conv(x)))


def add_in_place(self, x):
    y = self.bn(self.conv(x))
    y += x
    return F.relu(y, inplace=True)


def add_function(self, x):
    return torch.add(self.bn(self.conv(x)), x).relu_()


def add_method(self, x):
    return self.bn(self.conv(x)).add(x).relu()


def add_method_in_place(self, x):
    return self.bn(self.conv(x)).add_(x, alpha=1)


def add_alone(self, x):
    return self.bn(self.conv(x)) + x


def add_norms(self, x):
    return self.act(self.bn(self.conv(x)) + self.bn2(self.conv2(x)))


def add_norms_swapped(self, x):
    a = self.bn(self.conv(x))
    b = self.bn2(self.conv2(x))
    return self.act(b + a)


def sum_is_used_twice(self, x):
    y = self.bn(self.conv(x)) + x
    return self.act(y) * y


def twice(self, x):
    return self.bn(self.act(self.bn(self.conv(x))))


def through_method(self, x):
    return self.inner(x)


def with_keyword(self, x, *, scale=2.0):
    return F.relu(self.bn(self.conv(x))) * scale


def with_option(self, x, mask=None):
    y = torch.relu(self.bn(self.conv(x)))
    return y if mask is None else y * mask


RELU, ADD_RELU, ADD = ("relu", False), ("relu", True), (None, True)
FUSED = [
    (act_module, None, [RELU]),
    (add_operator, None, [ADD_RELU]),
    (add_swapped, None, [ADD_RELU]),
    (add_in_place, None, [ADD_RELU]),
    (add_function, None, [ADD_RELU]),
    (add_method, None, [ADD_RELU]),
    (add_method_in_place, None, [ADD]),
    (add_alone, None, [ADD]),
    (add_norms, None, [(None, False), ADD_RELU]),
    (add_norms_swapped, None, [(None, False), ADD_RELU]),
    (sum_is_used_twice, nn.ReLU(), [ADD]),
    (twice, None, [RELU, (None, False)]),
    (with_keyword, None, [RELU]),
    (with_option, None, [RELU]),
]
ACTIVATIONS = [
    (nn.ReLU(), "relu"),
    (nn.LeakyReLU(), "leaky_relu"),
    (nn.LeakyReLU(0.2, inplace=True), "leaky_relu:0.2"),
    (nn.SiLU(inplace=True), "silu"),
    (nn.GELU(), "gelu"),
    (nn.GELU("tanh"), "gelu_tanh"),
    (nn.Sigmoid(), "sigmoid"),
    (nn.Tanh(), "tanh"),
    (nn.Hardswish(), "hardswish"),
    (lambda x: F.leaky_relu(x, 0.3), "leaky_relu:0.3"),
    (lambda x: F.leaky_relu(x, negative_slope=1, inplace=True), "leaky_relu:1.0"),
    (lambda x: F.leaky_relu_(x), "leaky_relu"),
    (lambda x: F.silu(x), "silu"),
    (lambda x: F.gelu(x, approximate="tanh"), "gelu_tanh"),
    (lambda x: F.gelu(x), "gelu"),
    (lambda x: F.hardswish(x, inplace=True), "hardswish"),
    (lambda x: F.relu_(x), "relu"),
    (lambda x: torch.relu_(x), "relu"),
    (lambda x: torch.sigmoid(x), "sigmoid"),
    (lambda x: F.sigmoid(x), "sigmoid"),
    (lambda x: x.sigmoid_(), "sigmoid"),
    (lambda x: torch.tanh(x), "tanh"),
    (lambda x: x.tanh(), "tanh"),
]


@pytest.mark.parametrize("forward, act, calls", FUSED, ids=[f[0].__name__ for f in FUSED])
def test_fused(forward, act, calls, monkeypatch):
    theirs, ours = fuse_twins(net(forward, act))
    log = log_calls(monkeypatch)
    ours(image())
    assert log == calls
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image())


@pytest.mark.parametrize("act, name", ACTIVATIONS, ids=[f"{i}-{a[1]}" for i, a in enumerate(ACTIVATIONS)])
def test_activations(act, name, monkeypatch):
    if isinstance(act, nn.Module):
        model = net(act_module, act)
    else:
        model = net(lambda self, x: act(self.bn(self.conv(x))))
    theirs, ours = fuse_twins(model)
    log = log_calls(monkeypatch)
    ours(image())
    assert log == [(name, False)]
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image())


def test_methods_and_properties(monkeypatch):
    class Model(Net):
        @property
        def norm(self):
            return getattr(self, self.norm_name)

        def inner(self, x):
            return self.act(self.norm(self.conv(x)))

        def forward(self, x):
            return self.inner(x)

    model = Model()
    model.norm_name = "bn"
    theirs, ours = fuse_twins(model)
    log = log_calls(monkeypatch)
    ours(image())
    assert log == [RELU]
    # Another norm, another trace.
    theirs.norm_name = ours.norm_name = "bn2"
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image())
    assert log[1:] == [(None, False)] * 2


def test_super_is_traced(monkeypatch):
    class Model(net(act_module).__class__):
        def forward(self, x):
            return super().forward(x) + 1

    theirs, ours = fuse_twins(Model())
    log = log_calls(monkeypatch)
    ours(image())
    assert log == [RELU]
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image())


NORMS = [
    (nn.BatchNorm1d(4), (3, 4), "BatchNorm1d"),
    (nn.BatchNorm3d(4), (2, 4, 3, 2, 2), "BatchNorm3d"),
    (nn.SyncBatchNorm(4), (2, 4, 6), "SyncBatchNorm"),
    (nn.GroupNorm(2, 4), (2, 4, 6), "GroupNorm"),
    (nn.InstanceNorm2d(4, affine=True, track_running_stats=True), (2, 4, 3, 5), "InstanceNorm2d"),
    (nn.LayerNorm(4), (3, 4), "LayerNorm"),
    (nn.RMSNorm(4), (3, 4), "RMSNorm"),
]


@pytest.mark.parametrize("norm, shape, name", NORMS, ids=[n[2] for n in NORMS])
def test_every_norm(norm, shape, name):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.act = norm, nn.GELU()

        def forward(self, x):
            return self.act(x * 2 + self.norm(x))

    model = Block()
    assert plan_conversion(model).fused == {f"{name} + add + gelu": 1}
    theirs, ours = fuse_twins(model)
    assert_same(theirs, ours, image(*shape))


def test_small_resnet(monkeypatch):
    model = Small()
    report = plan_conversion(model)
    assert report.fused == SMALL_FUSED and report.plain == 1 and not report.left
    assert report.done == {"BatchNorm2d": 6}
    theirs, ours = fuse_twins(model)
    log = log_calls(monkeypatch)
    ours(image(2, 3, 14, 14))
    assert sorted(log, key=str) == sorted([("silu", False), RELU, RELU, ADD_RELU, ADD_RELU, (None, False)], key=str)
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image(2, 3, 14, 14))


def test_lists_of_modules(monkeypatch):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList(nn.Conv2d(4, 4, 1) for _ in range(2))
            self.norms = nn.ModuleDict({"a": nn.BatchNorm2d(4), "b": nn.BatchNorm2d(4)})

        def forward(self, x):
            for conv, name in zip(self.convs, self.norms):
                x = torch.relu(self.norms[name](conv(x)))
            return x

    theirs, ours = fuse_twins(Model())
    log = log_calls(monkeypatch)
    ours(image())
    assert log == [RELU, RELU]
    # One more of each: what was traced holds no longer.
    extra = nn.Conv2d(4, 4, 1).double(), settle(nn.BatchNorm2d(4).double())
    for model in (theirs, ours):
        conv, norm = copy.deepcopy(extra)
        model.convs.append(conv)
        model.norms["c"] = norm
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image())


def test_inputs_by_type(monkeypatch):
    class Model(Net):
        def forward(self, x):
            if isinstance(x, torch.Tensor):
                x = [x]
            return self.act(self.bn(self.conv(torch.cat(x, 1))))

    theirs, ours = fuse_twins(Model())
    log = log_calls(monkeypatch)
    x = image()
    for given in (x, [x[:, :1], x[:, 1:]], (x,), nn.Parameter(x)):
        expected = theirs.train()(given)
        torch.testing.assert_close(ours.train()(given), expected, rtol=1e-11, atol=1e-11)
    # A tuple and a parameter are neither of the types that were traced.
    assert log == [RELU, RELU, (None, False), (None, False)]


def test_numbers_are_not_changed_in_place():
    def forward(self, x):
        height = x.shape[2]
        more = height
        more += 1
        less = height
        less *= 0
        y = self.act(self.bn(self.conv(x)))
        z = y.view(torch.Size([-1])).clamp(max=float("inf"))
        z = z.nan_to_num(0.0, 1.0, -1.0).to(torch.float64, memory_format=torch.preserve_format)
        return (y * height + more + less)[..., 1:, None] + z.sum()

    theirs, ours = fuse_twins(net(forward, nn.ReLU()))
    assert type(ours).__name__ == "Fused<Given>"
    assert_same(theirs, ours, image())


# Forwards that are left alone, each for one reason.
def control_flow(self, x):
    y = self.bn(self.conv(x))
    return self.act(y) if y.sum() > 0 else y


def by_mode(self, x):
    y = self.act(self.bn(self.conv(x)))
    return F.dropout(y, 0.0, self.training)


def stores(self, x):
    self.seen = x.shape
    return self.act(self.bn(self.conv(x)))


def stores_in_method(self, x):
    self.remember(x)
    return self.act(self.bn(self.conv(x)))


COUNT = 0


def stores_global(self, x):
    global COUNT
    COUNT += 1
    return self.act(self.bn(self.conv(x)))


def reads_global(self, x):
    return self.act(self.bn(self.conv(x))) * COUNT


def counts(x):
    return x * counts.factor


counts.factor = 2


def reads_function(self, x):
    return counts(self.act(self.bn(self.conv(x))))


def prints(self, x):
    print("here")
    return self.act(self.bn(self.conv(x)))


def takes_many(self, *args):
    return self.act(self.bn(self.conv(args[0])))


def takes_keywords(self, x, **kwargs):
    return self.act(self.bn(self.conv(x)))


def tries(self, x):
    try:
        return self.act(self.bn(self.conv(x)))
    except ValueError:
        return x


def no_grad(self, x):
    with torch.no_grad():
        y = self.bn(self.conv(x))
    return self.act(y)


def random_depth(self, x):
    if self.training and torch.rand(1).item() < 0.5:
        return x
    return self.act(self.bn(self.conv(x)))


def asks_grad_mode(self, x):
    y = self.act(self.bn(self.conv(x)))
    return y * 2 if torch.is_grad_enabled() else y


def asks_type_of_value(self, x):
    y = self.conv(x)
    return self.act(self.bn(y if isinstance(y, torch.Tensor) else y[0]))


def asks_none_of_value(self, x):
    y = self.conv(x)
    if y is None:
        return x
    return self.act(self.bn(y))


def reads_child(self, x):
    return self.act(self.bn(self.conv(x))) * self.bn.eps


def reads_object(self, x):
    return self.act(self.bn(self.conv(x))) * self.config["scale"]


def calls_itself_with_type(self, x):
    return self.act(self.bn(self.conv(x))) * (2 if type(x) is list else 1)


def constant(self, x):
    return self.act(self.bn(self.conv(x))) * torch.Tensor([2.0])


def random_number(self, x):
    return self.act(self.bn(self.conv(x))) * (1 if random.random() < 2 else 0)


def random_tensor(self, x):
    return self.act(self.bn(self.conv(x))) * (1 if torch.FloatTensor(1).uniform_().item() < 2 else 0)


def compares_identity(self, x, other=None):
    y = self.conv(x)
    return self.act(self.bn(y)) * (2 if y is x else 1)


class _Remembers(Net):
    def remember(self, x):
        self.seen = x.shape


class _Configured(Net):
    def __init__(self, act=None):
        super().__init__(act)
        self.config = {"scale": 2.0}


@torch.no_grad()
def decorated(self, x):
    return self.act(self.bn(self.conv(x)))


REFUSED = [
    (control_flow, Net, "its control flow depends on its input"),
    (by_mode, Net, "its forward differs between training and evaluation"),
    (stores, Net, "stores stores the attribute seen"),
    (stores_in_method, _Remembers, "remember stores the attribute seen"),
    (stores_global, Net, "stores the global COUNT"),
    (reads_global, Net, "reads COUNT"),
    (reads_function, Net, "counts reads counts.factor"),
    (prints, Net, "prints prints"),
    (takes_many, Net, "its forward takes *args"),
    (takes_keywords, Net, "its forward takes **kwargs"),
    (tries, Net, "has a try"),
    (no_grad, Net, "has a "),
    (decorated, Net, "its forward runs torch.utils._contextlib."),
    (random_depth, Net, "reads torch.rand"),
    (random_number, Net, "reads random.random"),
    (random_tensor, Net, "its forward runs torch."),
    (asks_grad_mode, Net, "reads torch.is_grad_enabled"),
    (asks_type_of_value, Net, "asks for the type of a value"),
    (asks_none_of_value, Net, "asks whether a value is None"),
    (reads_child, Net, "reads bn.eps"),
    (reads_object, _Configured, "reads self.config, a dict"),
    (calls_itself_with_type, Net, "uses type"),
    (constant, Net, "its forward runs torch."),
    (compares_identity, Net, "compares by identity"),
]


@pytest.mark.parametrize("forward, base, reason", REFUSED, ids=[r[0].__name__ for r in REFUSED])
def test_refused(forward, base, reason, monkeypatch, capsys):
    model = net(forward, base=base)
    report = plan_conversion(model)
    assert not report.fused
    assert [path for path, why in report.left if reason in why] == [""], report
    assert "here" not in capsys.readouterr().out, "the trace ran it"
    theirs, ours = twins(model)
    convert(ours)
    assert reason in capsys.readouterr().out
    log = log_calls(monkeypatch)
    for training in (True, False):
        torch.manual_seed(3)
        expected = theirs.train(training)(x := image())
        torch.manual_seed(3)
        torch.testing.assert_close(ours.train(training)(x), expected, rtol=1e-11, atol=1e-11)
    assert set(log) <= {(None, False)}


def test_a_class_with_its_own_ways_is_refused():
    with_getattr = type("WithGetattr", (Net,), {"forward": act_module, "__getattr__": lambda self, n: nn.Module.__getattr__(self, n)})
    reduced = type("Reduced", (Net,), {"forward": act_module, "__reduce__": lambda self: (Net, ())})
    registry = type("Registry", (Net,), {"forward": act_module, "__init_subclass__": lambda **k: None})
    for cls, reason in ((with_getattr, "__getattr__"), (reduced, "__reduce__"), (registry, "__init_subclass__")):
        report = plan_conversion(cls())
        assert not report.fused and reason in str(report)
    replaced = net(act_module)
    replaced.forward = lambda x: x
    assert "replaced on the instance" in str(plan_conversion(replaced))
    scripted = torch.jit.script(nn.Sequential(nn.BatchNorm2d(4), nn.ReLU()))
    report = plan_conversion(scripted)
    assert not report.done and "a scripted BatchNorm2d: 0" in str(report)
    symbolic = torch.fx.symbolic_trace(net(act_module))
    assert "a graph module of torch.fx" in str(plan_conversion(symbolic))


# Norms that stay plain though something follows them.
def norm_is_seen(self, x):
    y = self.bn(self.conv(x))
    return self.act(y) + y


def sum_of_itself(self, x):
    y = self.bn(self.conv(x))
    return self.act(y + y)


def adds_number(self, x):
    return self.bn(self.conv(x)) + 1


def adds_scaled(self, x):
    return torch.add(self.bn(self.conv(x)), x, alpha=2)


def into_residual(self, x):
    z = x * 1
    z += self.bn(self.conv(x))
    return self.act(z) + z


def input_changes(self, x):
    a = x * 2
    y = self.bn(a)
    b = self.conv(self.act(a))
    return y + b


def residual_changes(self, x):
    r = self.conv2(x)
    y = F.silu(self.bn(self.conv(x)) + r)
    return y + self.act(r)


def called_in_between(self, x):
    a = self.bn(self.conv(x))
    b = self.bn(self.conv2(x))
    return self.act(a + b * 2) + a * 0


def waits_for_itself(self, x):
    return self.bn(self.conv(x)) + self.conv2(self.bn(x))


PLAIN = [
    (norm_is_seen, nn.ReLU()),
    (sum_of_itself, None),
    (adds_number, None),
    (adds_scaled, None),
    (into_residual, nn.ReLU()),
    (residual_changes, nn.ReLU(inplace=True)),
    (called_in_between, None),
    (waits_for_itself, None),
]


@pytest.mark.parametrize("forward, act", PLAIN, ids=[p[0].__name__ for p in PLAIN])
def test_stays_plain(forward, act, monkeypatch):
    model = net(forward, act)
    assert not plan_conversion(model).fused
    theirs, ours = fuse_twins(model)
    log = log_calls(monkeypatch)
    ours(image())
    assert set(log) == {(None, False)}
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image())


def test_an_input_that_changes_before_the_addition(monkeypatch):
    # The norm's input is overwritten between the norm and the addition; only without gradients does PyTorch allow that.
    theirs, ours = fuse_twins(net(input_changes))
    log = log_calls(monkeypatch)
    with torch.no_grad():
        torch.testing.assert_close(ours(x := image()), theirs(x), rtol=1e-11, atol=1e-11)
    assert log == [(None, False)]


def near(model):
    report = plan_conversion(model)
    assert not report.fused
    return [(path, reason) for path, reason in report.left]


def test_near_misses_are_listed():
    assert near(net(act_module, nn.ReLU6())) == [("bn", "not fused, since the activation ReLU6 is not one of isonorm's")]
    subclass = type("MyReLU", (nn.ReLU,), {})
    assert near(net(act_module, subclass())) == [("bn", "not fused, since the activation is a subclass of ReLU")]
    for hook in ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"):
        model = net(act_module)
        getattr(model.act, hook)(lambda *args: None)
        assert near(model) == [("bn", "not fused, since the activation has hooks or a forward of its own")]
        model = net(act_module)
        getattr(model.bn, hook)(lambda *args: None)
        assert near(model) == [("bn", "not fused, since the norm has hooks or a forward of its own")]
    assert near(net(input_changes)) == [("bn", "not fused, since its input may be changed before the addition")]
    assert "shares its state" in near(net(waits_for_itself))[0][1]
    assert "changed in place later" in near(net(residual_changes))[0][1]


def test_a_norm_with_an_activation_of_its_own(monkeypatch):
    import isonorm.torch as iso

    model = net(act_module)
    model.bn = iso.BatchNorm2d(4, activation="tanh")
    assert not plan_conversion(model).fused
    convert(model, verbose=False)
    log = log_calls(monkeypatch)
    model.float()(image().float())
    assert log == [("tanh", False)]


# Changes after the conversion: what was proved holds no longer, and the original forward is back.
def replace_activation(m):
    m.relu = nn.Tanh()


def replace_in_dict(m):
    m._modules["relu"] = nn.Tanh()


def drop_projection(m):
    m.downsample = None


def replace_norm(m):
    m.bn1 = settle(nn.BatchNorm2d(12).double())


def replace_convolution(m):
    m.conv2 = nn.Conv2d(12, 12, 1, bias=False).double()


def activation_on_norm(m):
    # In PyTorch's model that is an attribute without meaning.
    if type(m.bn1) is not nn.BatchNorm2d:
        m.bn1.activation = "sigmoid"


def hook_on_activation(m):
    m.relu.register_forward_hook(lambda module, args, y: y * 2)


def hook_on_norm(m):
    m.bn2.register_forward_hook(lambda module, args, y: y * 2)


def forward_of_activation(m):
    m.relu.forward = torch.tanh


def forward_of_block(m):
    m.forward = lambda x: torch.tanh(x[:, :, ::2, ::2].repeat(1, 2, 1, 1)[:, :12])


CHANGES = [
    replace_activation,
    replace_in_dict,
    drop_projection,
    replace_norm,
    replace_convolution,
    hook_on_activation,
    hook_on_norm,
    forward_of_activation,
    forward_of_block,
]


@pytest.mark.parametrize("change", CHANGES, ids=[c.__name__ for c in CHANGES])
def test_changes_are_honoured(change):
    stride = 1 if change is drop_projection else 2
    model = Basic(12 if stride == 1 else 8, 12, stride)
    if stride == 1:
        model.downsample = nn.Sequential(nn.Conv2d(12, 12, 1), nn.BatchNorm2d(12))
    theirs, ours = fuse_twins(model)
    assert type(ours).__name__ == "Fused<Basic>"
    x = image(2, 12 if stride == 1 else 8, 6, 6)
    before = theirs(x).detach()
    for m in (theirs, ours):
        torch.manual_seed(7)
        change(m)
    ours.load_state_dict(theirs.state_dict())
    assert (theirs(x) - before).abs().max() > 1e-3, "the change makes no difference"
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, x)


def test_a_later_activation_of_the_norm_is_honoured():
    ours = convert(settle(Basic(8, 8)), verbose=False).eval()
    x = torch.randn(2, 8, 5, 5)
    ours.bn1.activation = "sigmoid"
    expected = ours.bn2(ours.conv2(torch.relu(torch.sigmoid(ours.bn1(ours.conv1(x), activation=None)))))
    torch.testing.assert_close(ours(x), torch.relu(expected + x))


def test_class_patches_are_honoured(monkeypatch):
    cls = net(act_module).__class__
    theirs, ours = fuse_twins(cls())
    monkeypatch.setattr(cls, "forward", lambda self, x: self.bn(self.conv(x)).tanh())
    assert_same(theirs, ours, image())


def test_methods_set_on_the_instance_are_honoured():
    class Model(Net):
        def inner(self, x):
            return self.bn(self.conv(x))

        def forward(self, x):
            return self.act(self.inner(x))

    theirs, ours = fuse_twins(Model())
    for m in (theirs, ours):
        m.inner = lambda x, m=m: m.bn2(m.conv(x))
    assert_same(theirs, ours, image())


def test_attributes_are_watched():
    class Model(Net):
        def __init__(self):
            super().__init__(nn.LeakyReLU(0.1))
            self.scale, self.twice, self.function = 2, False, torch.neg

        def forward(self, x):
            y = self.act(self.bn(self.conv(x))) * self.scale
            if hasattr(self, "shift"):
                y = y + self.shift
            return self.function(y + y if self.twice else y)

    theirs, ours = fuse_twins(Model())
    for name, value in (("scale", 2.5), ("scale", torch.tensor(3.0)), ("twice", True), ("function", torch.abs), ("shift", 1.0)):
        for m in (theirs, ours):
            setattr(m, name, value)
        assert_same(theirs, ours, image())
        for m in (theirs, ours):
            vars(m).update(scale=2, twice=False, function=torch.neg)
            vars(m).pop("shift", None)
    for m in (theirs, ours):
        m.act.negative_slope = 0.4
    assert_same(theirs, ours, image())


def sequence():
    return nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.SiLU())


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.append(nn.Tanh()),
        lambda m: m.insert(2, nn.Tanh()),
        lambda m: m.__delitem__(2),
        lambda m: m.__setitem__(2, nn.Tanh()),
        lambda m: m.__setitem__(1, nn.Identity()),
        lambda m: m.pop(5),
        lambda m: m.add_module("last", nn.Tanh()),
    ],
    ids=["append", "insert", "delete", "activation", "norm", "pop", "add"],
)
def test_sequences(change, monkeypatch):
    theirs, ours = fuse_twins(sequence())
    assert isinstance(ours, nn.Sequential) and len(ours) == 6
    log = log_calls(monkeypatch)
    before = ours(image())
    assert log == [RELU, ("silu", False)] and before.shape == (2, 4, 6, 5)
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image())
    change(theirs), change(ours)
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image())
    # What was changed can be converted again.
    convert(ours, verbose=False)
    assert_same(theirs, ours, image())


def test_parts_of_a_sequence_are_plain():
    theirs, ours = fuse_twins(sequence())
    x = image()
    torch.testing.assert_close(ours[:2](x), theirs[:2](x), rtol=1e-11, atol=1e-11)
    y, z = x, x
    for a, b in zip(theirs, ours):
        y, z = a(y), b(z)
        torch.testing.assert_close(z, y, rtol=1e-11, atol=1e-11)


def test_global_hooks_see_every_module():
    ours = convert(sequence(), verbose=False)
    seen = []
    with torch.nn.modules.module.register_module_forward_hook(lambda m, args, y: seen.append(type(m).__name__)):
        ours(torch.randn(2, 4, 3, 3))
    assert seen == ["Conv2d", "BatchNorm2d", "ReLU", "Conv2d", "BatchNorm2d", "SiLU", "Fused<Sequential>"]


def test_options_are_honoured(monkeypatch):
    theirs, ours = fuse_twins(net(with_option))
    log = log_calls(monkeypatch)
    x, mask = image(), image()
    torch.testing.assert_close(ours(x, mask), theirs(x, mask), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(ours(x=x, mask=mask), theirs(x=x, mask=mask), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(ours(x=x), theirs(x=x), rtol=1e-11, atol=1e-11)
    assert log == [(None, False), (None, False), RELU]
    theirs, ours = fuse_twins(net(with_keyword))
    torch.testing.assert_close(ours(x, scale=5), theirs(x, scale=5), rtol=1e-11, atol=1e-11)


def test_an_addition_in_place_keeps_type_and_shape():
    model = net(add_in_place)
    model.conv = nn.Identity()
    class Two(Net):
        def forward(self, x, r):
            y = self.bn(x)
            y += r
            return torch.relu(y)

    theirs = settle(Two()).bfloat16()
    ours = convert(copy.deepcopy(theirs), verbose=False)
    x = torch.randn(2, 4, 3, 3, dtype=torch.bfloat16)
    for r in (torch.randn(2, 4, 3, 3), torch.randn(4, 1, 1, dtype=torch.bfloat16), torch.randn(2, 4, 3, 3, dtype=torch.bfloat16)):
        expected = theirs(x, r)
        found = ours(x, r)
        assert found.dtype == expected.dtype == torch.bfloat16
        # One rounding less where the sum is not stored in between: two units of the last place of values around 2.
        torch.testing.assert_close(found, expected, rtol=2**-7, atol=2**-6)
    with pytest.raises(RuntimeError, match="match"):
        ours(x[:1], x)
    # Outside of an addition in place, types are promoted.
    model = convert(settle(net(lambda self, x: torch.relu(self.bn(x) + self.conv2.weight.float().sum() * x.float()))).bfloat16(), verbose=False)
    assert model(x).dtype == torch.float32


def test_synchronized_norms_do_not_change_places():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn = nn.Conv2d(4, 4, 1), nn.SyncBatchNorm(4)
            self.down = nn.Sequential(nn.Conv2d(4, 4, 1), nn.SyncBatchNorm(4))

        def forward(self, x):
            y = self.bn(self.conv(x))
            return torch.relu(y + self.down(x))

    report = plan_conversion(Model())
    assert not report.fused and "may communicate" in str(report)
    model = Model()
    model.down = nn.Conv2d(4, 4, 1)
    assert plan_conversion(model).fused == {"SyncBatchNorm + add + relu": 1}


def test_the_first_of_shared_norms_stays_first():
    # bn's statistics are updated by two calls: their order is that of the original.
    def forward(self, x):
        a = self.bn(self.conv(x))
        b = torch.relu(self.bn(self.conv2(x)))
        return a + b

    theirs, ours = fuse_twins(net(forward))
    assert_same(theirs, ours, image())


def test_frozen_statistics_and_no_gradients():
    theirs, ours = fuse_twins(Small())
    x = image(2, 3, 14, 14)
    for model in (theirs, ours):
        model.train()
        for m in model.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.eval()
                m.weight.requires_grad_(False)
    e, f = run(theirs, x), run(ours, x)
    for name in e:
        torch.testing.assert_close(f[name], e[name], rtol=1e-10, atol=1e-10, msg=name)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-11, atol=1e-11)


def test_revert_separates():
    ours = convert(Small(), verbose=False)
    assert type(ours.block1).__name__ == "Fused<Basic>" and type(ours.block1) is not type(ours.block2)
    revert(ours)
    assert type(ours.block1) is Basic and type(ours.stem) is nn.Sequential
    assert {type(m) for m in ours.modules() if isinstance(m, nn.BatchNorm2d)} == {nn.BatchNorm2d}
