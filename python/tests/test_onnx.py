"""ONNX's own test cases for normalizations, through a small backend built on the numpy functions.

ONNX differs from PyTorch in its running statistics: its momentum is what is kept, not what is replaced, and the
variance that it averages is the biased one. GroupNormalization had a scale for each group until opset 21.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import numpy_helper  # noqa: E402
from onnx.backend.test.loader import load_model_tests  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import isonorm  # noqa: E402

OPS = (
    "BatchNormalization",
    "InstanceNormalization",
    "GroupNormalization",
    "LayerNormalization",
    "RMSNormalization",
)


def batch_normalization(opset, x, scale, bias, mean, var, *, epsilon=1e-5, momentum=0.9, training_mode=0, **_):
    """Y; in training also the running mean and variance."""
    if not training_mode:
        return (isonorm.batch_norm(x, mean, var, scale, bias, eps=epsilon),)
    running_mean, batch_var = mean.copy(), np.zeros_like(var)
    # With a momentum of 1 the running variance is the batch's, from which the unbiased factor can be taken away.
    isonorm.batch_norm(x, running_mean, batch_var, training=True, momentum=1.0)
    running_mean = mean.copy()
    y = isonorm.batch_norm(x, running_mean, var.copy(), scale, bias, training=True, momentum=1 - momentum, eps=epsilon)
    n = x.size // x.shape[1]
    biased = batch_var * ((n - 1) / n)
    return y, running_mean, (momentum * var + (1 - momentum) * biased).astype(var.dtype)


def instance_normalization(opset, x, scale, bias, *, epsilon=1e-5, **_):
    """Y."""
    return (isonorm.instance_norm(x, weight=scale, bias=bias, eps=epsilon),)


def group_normalization(opset, x, scale, bias, *, num_groups, epsilon=1e-5, **_):
    """Y."""
    if opset < 21:
        each = x.shape[1] // num_groups
        scale, bias = np.repeat(scale, each), np.repeat(bias, each)
    return (isonorm.group_norm(x, num_groups, scale, bias, epsilon),)


def layer_normalization(opset, x, scale, bias=None, *, axis=-1, epsilon=1e-5, **_):
    """Y; the saved mean and deviation are no outputs of the numpy function."""
    return (isonorm.layer_norm(x, x.shape[axis % x.ndim :], scale, bias, epsilon),)


def rms_normalization(opset, x, scale, *, axis=-1, epsilon=1e-5, **_):
    """Y."""
    return (isonorm.rms_norm(x, x.shape[axis % x.ndim :], scale, epsilon),)


BACKEND = dict(
    zip(
        OPS,
        (batch_normalization, instance_normalization, group_normalization, layer_normalization, rms_normalization),
    )
)


def run_node(model, inputs):
    """The outputs of a model of one node."""
    (node,) = model.graph.node
    opset = next(o.version for o in model.opset_import if o.domain == "")
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    initial = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    fed = [i.name for i in model.graph.input if i.name not in initial]
    values = dict(initial, **dict(zip(fed, inputs)))
    return BACKEND[node.op_type](opset, *(values[name] if name else None for name in node.input), **attributes)


def of_our_ops(model) -> bool:
    """Whether a model is one normalization."""
    return len(model.graph.node) == 1 and model.graph.node[0].op_type in OPS


def node_cases():
    """ONNX's cases of single nodes, as it generates them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {c.name: c for c in load_model_tests(kind="node") if of_our_ops(c.model)}


def converted_cases():
    """ONNX's cases that were exported from PyTorch, as they lie on the disk."""
    cases = {}
    for case in load_model_tests(kind="pytorch-converted"):
        if "Norm" in case.name:
            model = onnx.load(os.path.join(case.model_dir, "model.onnx"))
            if of_our_ops(model):
                cases[case.name] = (case, model)
    return cases


NODE_CASES = node_cases()
CONVERTED_CASES = converted_cases()


def test_every_op_has_cases():
    found = {case.model.graph.node[0].op_type for case in NODE_CASES.values()}
    assert found == set(OPS)
    assert len(NODE_CASES) >= 46 and CONVERTED_CASES


@pytest.mark.parametrize("name", sorted(NODE_CASES))
def test_node(name):
    case = NODE_CASES[name]
    for inputs, outputs in case.data_sets:
        found = run_node(case.model, inputs)
        for mine, wanted in zip(found, outputs):
            assert mine.dtype == wanted.dtype and mine.shape == wanted.shape
            np.testing.assert_allclose(mine, wanted, rtol=case.rtol, atol=case.atol)


@pytest.mark.parametrize("name", sorted(CONVERTED_CASES))
def test_converted(name):
    case, model = CONVERTED_CASES[name]
    load = lambda path: numpy_helper.to_array(onnx.load_tensor(path))
    folders = [f for f in sorted(os.listdir(case.model_dir)) if f.startswith("test_data_set")]
    assert folders
    for folder in folders:
        at = os.path.join(case.model_dir, folder)
        (found,) = run_node(model, [load(os.path.join(at, "input_0.pb"))])
        np.testing.assert_allclose(found, load(os.path.join(at, "output_0.pb")), rtol=case.rtol, atol=1e-6)


def random_model(op, opset, shapes, outputs, **attributes):
    """A model of one node, and random inputs for it."""
    rng = np.random.default_rng(7)
    names = [f"i{k}" for k in range(len(shapes))]
    arrays = [rng.uniform(0.5, 2.0, shape).astype(np.float32) for shape in shapes]
    value = lambda n: onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None)
    results = [f"o{k}" for k in range(outputs)]
    node = onnx.helper.make_node(op, names, results, **attributes)
    graph = onnx.helper.make_graph([node], "g", [value(n) for n in names], [value(n) for n in results])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)]), arrays


BATCH = ((3, 4, 5, 2), (4,), (4,), (4,), (4,))
EVALUATED = {
    # Opset 9 is in the cases converted from PyTorch; ONNX's evaluator takes it for training.
    "batch 14, given statistics": ("BatchNormalization", 14, BATCH, 1, {"epsilon": 0.1}),
    "batch 14": ("BatchNormalization", 14, BATCH, 3, {"training_mode": 1, "momentum": 0.75}),
    "batch 15": ("BatchNormalization", 15, BATCH, 3, {"training_mode": 1, "momentum": 0.25, "epsilon": 0.1}),
    "batch 15, two dimensions": ("BatchNormalization", 15, ((7, 4), *BATCH[1:]), 1, {}),
    "instance 6": ("InstanceNormalization", 6, ((2, 3, 6), (3,), (3,)), 1, {}),
    "group 18": ("GroupNormalization", 18, ((2, 6, 5), (3,), (3,)), 1, {"num_groups": 3}),
    "group 21": ("GroupNormalization", 21, ((2, 6, 5), (6,), (6,)), 1, {"num_groups": 3}),
    "layer 17 without bias": ("LayerNormalization", 17, ((2, 6, 5), (6, 5)), 1, {"axis": -2}),
    "rms 23": ("RMSNormalization", 23, ((2, 6, 5), (6, 5)), 1, {"axis": 1, "epsilon": 0.01}),
}


@pytest.mark.parametrize("name", EVALUATED)
def test_against_the_reference_evaluator(name):
    op, opset, shapes, outputs, attributes = EVALUATED[name]
    model, inputs = random_model(op, opset, shapes, outputs, **attributes)
    wanted = ReferenceEvaluator(model).run(None, dict(zip([i.name for i in model.graph.input], inputs)))
    found = run_node(model, inputs)
    assert len(found) == len(wanted)
    for mine, reference in zip(found, wanted):
        np.testing.assert_allclose(mine, reference, rtol=1e-5, atol=1e-6)
