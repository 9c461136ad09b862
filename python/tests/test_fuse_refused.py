"""convert(fuse=True): modules whose trace would not stand for their forward are left alone, and say why."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from blocks import Net, act_module, image, log_calls, net, twins
from torch import nn

from isonorm.torch.convert import convert, plan_conversion


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


ELSEWHERE = nn.Conv2d(4, 4, 1).double()


def calls_itself(self, x, again=True):
    return self(x, False) if again else self.act(self.bn(self.conv(x)))


def calls_other(self, x):
    return self.act(self.bn(self.conv(x))) + [ELSEWHERE][0](x)


def default(x, factors=[2.0]):  # noqa: B006
    return x * factors[0]


def has_mutable_default(self, x):
    return default(self.act(self.bn(self.conv(x))))


class _WithDefault(Net):
    def inner(self, x, factors={}):  # noqa: B006
        return x * factors.get(0, 2)


def has_mutable_default_in_method(self, x):
    return self.inner(self.act(self.bn(self.conv(x))))


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
    (calls_itself, Net, "its forward calls a module that is not one of its children"),
    (calls_other, Net, "reads ELSEWHERE"),
    (has_mutable_default, Net, "reads default"),
    (has_mutable_default_in_method, _WithDefault, "the default of an argument of inner may change"),
    (reads_function, Net, "counts reads counts.factor"),
    (prints, Net, "prints prints"),
    (takes_many, Net, "its forward takes *args"),
    (takes_keywords, Net, "its forward takes **kwargs"),
    (tries, Net, "has a try"),
    (no_grad, Net, "has a "),
    (decorated, Net, "its forward runs torch.utils._contextlib."),
    (random_depth, Net, "reads torch.rand"),
    (random_number, Net, "reads random.random"),
    # By whichever of torch's functions, or the operator itself.
    (random_tensor, Net, "since its forward "),
    (asks_grad_mode, Net, "reads torch.is_grad_enabled"),
    (asks_type_of_value, Net, "asks for the type of a value"),
    (asks_none_of_value, Net, "asks whether a value is None"),
    (reads_child, Net, "reads bn.eps"),
    (reads_object, _Configured, "reads self.config, a dict"),
    (calls_itself_with_type, Net, "uses type"),
    (constant, Net, "since its forward "),
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
    def getattribute(self, name):
        return nn.Module.__getattr__(self, name)

    own = {"__getattr__": getattribute, "__reduce__": lambda self: (Net, ()), "__init_subclass__": lambda **k: None}
    for name, function in own.items():
        report = plan_conversion(type("Own", (Net,), {"forward": act_module, name: function})())
        assert not report.fused and f"defines {name}" in str(report)
    replaced = net(act_module)
    replaced.forward = lambda x: x
    assert "replaced on the instance" in str(plan_conversion(replaced))
    scripted = torch.jit.script(nn.Sequential(nn.BatchNorm2d(4), nn.ReLU()))
    report = plan_conversion(scripted)
    assert not report.done and "a scripted BatchNorm2d: 0" in str(report)
    symbolic = torch.fx.symbolic_trace(net(act_module))
    assert "a graph module of torch.fx" in str(plan_conversion(symbolic))
