"""convert and revert: what becomes isonorm's and what stays, and that everything else about a model is as it was."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref

import pytest
import torch
from blocks import SMALL_FUSED, Basic, Small, assert_same, image, log_calls, relative, run, settle, twins
from torch import nn

import isonorm.torch as iso
from isonorm.torch import _fuse, _fused
from isonorm.torch.convert import convert, plan_conversion, revert

LAYERS = [
    (nn.BatchNorm1d(4), iso.BatchNorm1d, (3, 4, 5)),
    (nn.BatchNorm2d(4, momentum=None), iso.BatchNorm2d, (3, 4, 5, 2)),
    (nn.BatchNorm3d(4, affine=False), iso.BatchNorm3d, (3, 4, 2, 2, 2)),
    (nn.BatchNorm2d(4, track_running_stats=False), iso.BatchNorm2d, (3, 4, 5, 2)),
    (nn.SyncBatchNorm(4), iso.SyncBatchNorm, (3, 4, 5)),
    (nn.InstanceNorm1d(4), iso.InstanceNorm1d, (3, 4, 5)),
    (nn.InstanceNorm2d(4, affine=True), iso.InstanceNorm2d, (3, 4, 5, 2)),
    (nn.InstanceNorm3d(4, track_running_stats=True), iso.InstanceNorm3d, (3, 4, 2, 2, 3)),
    (nn.LayerNorm((4, 5)), iso.LayerNorm, (3, 4, 5)),
    (nn.LayerNorm(5, elementwise_affine=False), iso.LayerNorm, (3, 4, 5)),
    (nn.RMSNorm(5), iso.RMSNorm, (3, 4, 5)),
    (nn.GroupNorm(2, 4), iso.GroupNorm, (3, 4, 5)),
]


def quiet(model, **keywords):
    return convert(model, verbose=False, **keywords)


def attributes(model):
    """Everything that the modules of a model have, by identity where it is an object."""
    return {path: (type(m), {k: v if isinstance(v, (int, float, str, tuple)) else id(v) for k, v in vars(m).items()})
            for path, m in model.named_modules()}  # fmt: skip


@pytest.mark.parametrize("layer, cls, shape", LAYERS, ids=[f"{i}-{c[1].__name__}" for i, c in enumerate(LAYERS)])
def test_every_class(layer, cls, shape):
    theirs, ours = twins(layer)
    state = {name: t.data_ptr() for name, t in ours.state_dict().items()}
    assert quiet(ours) is ours and type(ours) is cls
    assert {name: t.data_ptr() for name, t in ours.state_dict().items()} == state
    assert ours.extra_repr() == theirs.extra_repr()
    assert_same(theirs, ours, image(*shape))
    assert type(revert(ours)) is type(theirs)


def test_nothing_else_changes():
    model = Small()
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen = []
    model.block1.bn1.register_forward_hook(lambda m, args, y: seen.append(type(m)))
    before, references = attributes(model), [id(m) for m in model.modules()]
    assert quiet(model) is model
    assert [id(m) for m in model.modules()] == references
    assert all(a is b for a, b in zip(model.parameters(), parameters))
    assert isinstance(model.block1, Basic) and isinstance(model.stem, nn.Sequential)
    assert isinstance(model.block1.bn1, nn.BatchNorm2d)
    weight = model.block2.bn2.weight.detach().clone()
    model(torch.randn(2, 3, 14, 14)).sum().backward()
    optimizer.step()
    assert seen == [iso.BatchNorm2d] and not torch.equal(model.block2.bn2.weight, weight)
    optimizer.zero_grad()
    revert(model)
    assert attributes(model) == before


def test_twice_is_once_and_revert_without_convert_is_nothing():
    model = Small()
    before = attributes(model)
    revert(model)
    assert attributes(model) == before
    once = attributes(quiet(model))
    assert plan_conversion(model).fused == SMALL_FUSED and not plan_conversion(model).done
    assert attributes(quiet(model)) == once
    revert(model)
    assert attributes(model) == before


def test_without_fusing(monkeypatch):
    theirs, ours = twins(Small())
    quiet(ours, fuse=False)
    assert type(ours.block1) is Basic
    log = log_calls(monkeypatch)
    ours(image(2, 3, 14, 14))
    assert log == [(None, False)] * 6
    ours.load_state_dict(theirs.state_dict())
    assert_same(theirs, ours, image(2, 3, 14, 14))


def test_planning_changes_nothing():
    model = Small()
    before = attributes(model)
    report = plan_conversion(model)
    assert attributes(model) == before and report.fused == SMALL_FUSED
    assert not plan_conversion(model, fuse=False).fused


def test_modules_made_as_isonorms_stay():
    model = nn.Sequential(iso.BatchNorm2d(4), nn.BatchNorm2d(4), iso.BatchNorm2d(4, activation="relu"))
    quiet(model)
    assert {type(m) for m in model} == {iso.BatchNorm2d}
    revert(model)
    assert [type(m) for m in model] == [iso.BatchNorm2d, nn.BatchNorm2d, iso.BatchNorm2d]
    assert model[2].activation == "relu"
    quiet(model)
    model[1].activation = "tanh"
    assert type(revert(model)[1]) is iso.BatchNorm2d, "it does what torch's class does not"


def left(model):
    report = plan_conversion(model)
    return [(path, reason) for path, reason in report.left]


def test_left_alone():
    class LayerNorm2d(nn.LayerNorm):
        pass

    class LlamaRMSNorm(nn.Module):
        pass

    class Normalize(nn.Module):
        pass

    assert left(LayerNorm2d(4)) == [("", "a subclass of LayerNorm: LayerNorm2d")]
    unknown = ("0", f"not a class of torch.nn: {__name__}.LlamaRMSNorm")
    assert left(nn.Sequential(LlamaRMSNorm(), Normalize())) == [unknown]
    assert left(nn.LazyBatchNorm2d()) == [("", "a LazyBatchNorm2d, which has no parameters before its first call")]
    parametrized = nn.BatchNorm2d(4)
    nn.utils.parametrize.register_parametrization(parametrized, "weight", nn.Identity())
    assert left(parametrized) == [("", "a BatchNorm2d with parametrizations")]
    replaced = nn.LayerNorm(4)
    replaced.forward = torch.neg
    assert left(replaced) == [("", "its forward is replaced on the instance")]
    assert left(torch.jit.script(nn.Sequential(nn.LayerNorm(4)))) == [("0", "a scripted LayerNorm")]
    model = nn.ModuleList([LayerNorm2d(4), LlamaRMSNorm(), nn.LazyBatchNorm2d(), parametrized, replaced])
    types = [type(m) for m in model]
    assert [type(m) for m in quiet(model)] == types


def test_quantized_norms_are_left_alone():
    quantized = pytest.importorskip("torch.ao.nn.quantized").BatchNorm2d(4)
    cls = type(quantized)
    assert left(quantized) == [("", f"not a class of torch.nn: {cls.__module__}.BatchNorm2d")]
    assert type(quiet(quantized)) is cls


def test_a_lazy_norm_is_converted_after_its_first_call():
    model = nn.Sequential(nn.LazyBatchNorm2d(), nn.ReLU())
    quiet(model)
    model(torch.randn(2, 4, 3, 3))
    quiet(model)
    assert type(model[0]) is iso.BatchNorm2d and type(model).__name__ == "Fused<Sequential>"


def test_the_report(capsys):
    class LayerNorm2d(nn.LayerNorm):
        pass

    model = nn.Sequential(Small(), *(LayerNorm2d(4) for _ in range(6)))
    convert(model)
    assert capsys.readouterr().out.splitlines() == [
        "isonorm converted 6 BatchNorm2d",
        "  fused 2 BatchNorm2d + relu, 2 BatchNorm2d + add + relu, 1 BatchNorm2d + silu; 1 norm stays plain",
        "  left alone:",
        "    a subclass of LayerNorm: LayerNorm2d: 1, 2, 3, 4 and 2 more",
    ]
    convert(model, verbose=False)
    assert capsys.readouterr().out == ""
    assert str(plan_conversion(nn.Linear(2, 2))) == "isonorm converted nothing"


def through_pickle(model):
    return pickle.loads(pickle.dumps(model))


def through_save(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def through_a_new_process(model):
    """As where the classes that were made for the model are not there yet."""
    data = pickle.dumps(model)
    _fused._classes.clear()
    return pickle.loads(data)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, through_pickle, through_save, through_a_new_process])
def test_copies(copied, monkeypatch):
    theirs, ours = twins(Small())
    quiet(ours)
    other = copied(ours)
    assert [type(m).__name__ for m in other.modules()] == [type(m).__name__ for m in ours.modules()]
    log = log_calls(monkeypatch)
    other(image(2, 3, 14, 14))
    assert len(log) == 6 and log.count((None, False)) == 1
    other.load_state_dict(theirs.state_dict())
    assert_same(theirs, other, image(2, 3, 14, 14))
    # The copy lives on its own, and is reverted as the original is.
    if copied is not copy.copy:
        other.block1.relu = nn.Tanh()
        assert type(ours.block1.relu) is nn.ReLU
    revert(other)
    assert type(other.block1) is Basic and type(other.stem) is nn.Sequential
    assert type(other.block1.bn1) is nn.BatchNorm2d


def test_a_copy_in_the_same_process_is_not_traced_again(monkeypatch):
    model = quiet(Small())
    monkeypatch.setattr(_fuse, "fuse_module", lambda module: pytest.fail("it was"))
    copy.deepcopy(model)


def test_what_a_pickle_names_is_not_ours_where_it_need_not_be():
    assert b"Fused<" not in pickle.dumps(quiet(Small()))


def test_state_dicts_both_ways():
    theirs, ours = settle(Small()), quiet(settle(Small()))
    assert list(theirs.state_dict()) == list(ours.state_dict())
    assert ours.load_state_dict(theirs.state_dict(), strict=True)
    for name, t in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], t)
    assert settle(Small()).load_state_dict(quiet(settle(Small())).state_dict(), strict=True)
    assert ours.state_dict()._metadata["block1.bn1"]["version"] == 2


def test_classes_are_shared_and_forgotten():
    model = quiet(nn.Sequential(*(Basic(4, 4) for _ in range(3))))
    assert len({type(m) for m in model}) == 1, "as many classes would be as many compilations"
    cls = weakref.ref(type(model[0]))
    del model
    gc.collect()
    assert cls() is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_to_another_type_and_layout(dtype):
    theirs = settle(Small()).to(dtype).to(memory_format=torch.channels_last).eval()
    ours = quiet(copy.deepcopy(theirs))
    x = torch.randn(2, 3, 14, 14).to(dtype, memory_format=torch.channels_last)
    exact = copy.deepcopy(theirs).double()(x.double())
    error, allowed = relative(ours(x), exact), relative(theirs(x), exact)
    # Fused, there is a rounding less at each site; otherwise errors are the same.
    assert 0 < error <= 2 * allowed
    quiet(theirs).to(torch.float32)
    assert theirs(x.float()).dtype == torch.float32


def test_in_float32_as_exact_as_torch():
    """Ours may be as far from the result in float64 as torch's is in float32; twice that, for sums in another order."""
    theirs = settle(Small())
    ours, exact = quiet(copy.deepcopy(theirs)), copy.deepcopy(theirs).double()
    x = torch.randn(8, 3, 20, 20)
    for training in (True, False):
        e, t, o = (run(m.train(training), x.to(next(m.parameters()).dtype)) for m in (exact, theirs, ours))
        for name in e:
            if e[name].is_floating_point():
                # Half a unit of the last place is what a single rounding may cost.
                assert relative(o[name], e[name]) <= 2 * relative(t[name], e[name]) + 2**-24, (name, training)


def wrapped(results, name, prefix):
    """The result of that name of a model that is inside of another."""
    if name in results:
        return results[name]
    return results[name.replace("gradient of ", f"gradient of {prefix}").replace("buffer ", f"buffer {prefix}")]


@pytest.mark.parametrize("training", [True, False])
def test_compiles_whole(training):
    theirs, ours = twins(Small())
    quiet(ours)
    torch._dynamo.reset()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    x = image(2, 3, 14, 14)
    e, f = run(theirs.train(training), x), run(compiled.train(training), x)
    for name, value in e.items():
        torch.testing.assert_close(wrapped(f, name, "_orig_mod."), value, rtol=1e-9, atol=1e-9, msg=name)


def test_compiled_models_use_what_is_fused():
    ours = quiet(Basic(4, 4)).eval()
    torch._dynamo.reset()
    seen = []

    def backend(graph, inputs):
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    with torch.no_grad():
        torch.compile(ours, fullgraph=True, backend=backend)(torch.randn(2, 4, 5, 5))
    assert not any("relu" in name or "iadd" in name or name.endswith("add") for name in seen), seen
    assert sum("isonorm" in name for name in seen) == 2, seen


def test_exports():
    theirs, ours = twins(Small())
    quiet(ours)
    x = image(2, 3, 14, 14)
    exported = torch.export.export(ours.eval(), (x,)).module()
    torch.testing.assert_close(exported(x), theirs.eval()(x), rtol=1e-10, atol=1e-10)


def test_symbolic_tracing_sees_the_original():
    theirs, ours = twins(Small())
    traced = torch.fx.symbolic_trace(quiet(ours))
    assert_same(theirs, traced, image(2, 3, 14, 14))


def test_data_parallel(tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("torch.distributed is not available")
    theirs, ours = twins(Small())
    x = image(2, 3, 14, 14)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        before = nn.parallel.DistributedDataParallel(ours)
        quiet(before)
        assert type(ours.block1).__name__ == "Fused<Basic>"
        e, f = run(theirs, x), run(before, x)
        after = run(nn.parallel.DistributedDataParallel(quiet(copy.deepcopy(settle(Small()).double()))), x)
        for name, value in e.items():
            torch.testing.assert_close(wrapped(f, name, "module."), value, rtol=1e-10, atol=1e-10, msg=name)
        assert len(after) == len(e)
    finally:
        torch.distributed.destroy_process_group()


def test_checkpointing():
    from torch.utils.checkpoint import checkpoint

    theirs, ours = twins(Basic(4, 4))
    quiet(ours)
    x = image()
    for reentrant in (True, False):
        grads = []
        for model in (theirs, ours):
            given = x.clone().requires_grad_()
            checkpoint(model, given, use_reentrant=reentrant).square().sum().backward()
            grads.append(given.grad)
        torch.testing.assert_close(grads[1], grads[0], rtol=1e-10, atol=1e-10)


def test_functional_calls_and_transforms():
    theirs, ours = twins(Basic(4, 4).eval())
    quiet(ours)
    x = image()
    parameters = {name: p * 1.5 for name, p in theirs.named_parameters()}
    expected = torch.func.functional_call(theirs, parameters, (x,))
    torch.testing.assert_close(torch.func.functional_call(ours, parameters, (x,)), expected, rtol=1e-10, atol=1e-10)
    expected = torch.func.jacrev(theirs)(x)
    torch.testing.assert_close(torch.func.jacrev(ours)(x), expected, rtol=1e-10, atol=1e-10)
