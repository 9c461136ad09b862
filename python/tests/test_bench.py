"""`python -m isonorm.bench`: each part in quick mode, its tables and records, and what it says of mistakes.

No time is held against anything.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import isonorm.torch
from isonorm.bench import cli, layers, models, overhead, peers, step, timing
from isonorm.bench.cases import Case, CaseError, default_cases
from isonorm.bench.resnet import ResNet50

TINY = ["--quick", "--min-time", "0"]


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors are tiny."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(capsys, *arguments):
    """The exit code, and what was printed."""
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def record_of(path):
    return json.loads(path.read_text(encoding="utf-8"))


# Problem strings


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("quick", [False, True])
def test_the_default_cases_are_problem_strings(on_gpu, quick):
    cases = [Case.parse(text) for text in default_cases(on_gpu, quick)]
    assert {case.op for case in cases} == {"batchnorm", "layernorm", "rmsnorm", "groupnorm", "instancenorm"}
    for case in cases:
        for a_pass in case.passes:
            assert Case.parse(case.name(a_pass)) == dataclasses.replace(case, passes=(a_pass,))


PROBLEMS = [
    "batchnorm x=4x8x6x6 layout=nhwc dtype=bf16 param=f32 act=relu residual=add pass=train",
    "batchnorm x=4x8x6x6 layout=nhwc dtype=bf16 param=f32 act=relu residual=add pass=backward",
    "batchnorm x=16x8 layout=channels_last dtype=f32 pass=eval",
    "batchnorm x=4x8x6 layout=nlc dtype=f32 affine=none pass=backward_eval",
    "layernorm x=4x8x6 dims=2 dtype=f32 act=leaky_relu:0.2 pass=train",
    "layernorm x=4x8 dtype=f64 affine=weight residual=stream pass=backward",
    "rmsnorm x=4x8 dtype=f16 param=f16 eps=0.001 pass=train",
    "groupnorm x=4x8x6x6x2 groups=4 layout=ncdhw dtype=bf16 param=bf16 act=silu pass=train",
    "instancenorm x=4x8x6 layout=ncl dtype=f32 affine=full residual=add pass=backward",
]


@pytest.mark.parametrize("text", PROBLEMS)
def test_names_and_bytes_are_those_of_the_library(text):
    case = Case.parse(text)
    told = isonorm.explain(text, "cpu")
    (name,) = re.search(r"^problem +(.*)$", told, re.M).groups()
    assert case.name(*case.passes) == text == name
    number, unit = re.search(r"^bytes +([0-9.]+) (k?B) compulsory", told, re.M).groups()
    own = case.compulsory_bytes(*case.passes) / {"B": 1, "kB": 1e3}[unit]
    # It is told with one digit behind the point.
    assert abs(own - float(number)) < 0.051


def test_without_a_pass_both_directions_are_measured():
    assert Case.parse("rmsnorm x=4x8").passes == ("train", "backward")
    assert Case.parse("rmsnorm x=4x8 pass=eval").passes == ("eval",)


@pytest.mark.parametrize(
    "text, reason",
    [
        ("", "unknown op ''"),
        ("batchnrom x=4x8", "unknown op 'batchnrom'; expected one of batchnorm"),
        ("batchnorm", "the shape is missing"),
        ("batchnorm x=4x8 fast", "'fast' is not key=value"),
        ("batchnorm x=4x8 over=channels", "unknown key 'over'"),
        ("batchnorm x=4x8 x=4x8", "x is given twice"),
        ("batchnorm x=4x-8", "'-8' is not a positive number"),
        ("batchnorm x=4x²", "is not a positive number"),
        ("batchnorm x=4", "expected x of 2 to 5 dimensions, got 1"),
        ("batchnorm x=4x8 groups=2", "batchnorm takes no groups"),
        ("batchnorm x=4x8x2x2 layout=nlc", "unknown layout 'nlc' for 4 dimensions; expected nchw, nhwc"),
        ("batchnorm x=4x8 dtype=f8", "unknown dtype 'f8'"),
        ("batchnorm x=4x8 dtype=bf16 param=f16", "parameters must be f32 or of x's type bf16, got f16"),
        ("batchnorm x=4x8 act=swish", "unknown act 'swish'"),
        ("layernorm x=4x8 act=leaky_relu:steep", "the slope 'steep' is not a finite number"),
        ("batchnorm x=4x8 residual=stream", "residual=stream is for layernorm and rmsnorm"),
        ("batchnorm x=4x8 act=relu residual=masked", "say residual=add"),
        ("groupnorm x=4x8x2x2", "groupnorm needs groups="),
        ("groupnorm x=4x8x2x2 groups=3", "8 channels are no multiple of 3 groups"),
        ("layernorm x=4x8 dims=3", "cannot normalize over the last 3 dimensions of x of 2"),
        ("layernorm x=4x8 eps=-1", "eps=-1 is not a finite number of 0 or more"),
        ("layernorm x=4x8 pass=sideways", "unknown pass 'sideways'"),
        ("rmsnorm x=4x8 affine=full", "the module of rmsnorm has no bias"),
        ("groupnorm x=4x8 groups=2 affine=weight", "affine=full or none"),
    ],
)
def test_what_is_no_case_is_told(text, reason):
    with pytest.raises(CaseError) as caught:
        Case.parse(text)
    assert reason in str(caught.value) and str(caught.value).startswith(repr(text))


# Layers


def test_layers_are_measured_and_recorded(capsys, tmp_path, device):
    path = tmp_path / "record.json"
    problem = "batchnorm x=4x8x6x6 layout=nhwc dtype=bf16 act=relu residual=add"
    code, out, err = run(
        capsys, "layers", *TINY, "--peers", "torch", "--case", problem, "--case", "layernorm x=16x32 pass=train",
        "--device", device, "--save", path,
    )  # fmt: skip
    assert code == 0, out + err
    names = [Case.parse(problem).name(a_pass) for a_pass in ("train", "backward")]
    names.append("layernorm x=16x32 dtype=f32 pass=train")
    # Once for its times and once for its errors.
    for name in names:
        assert len(re.findall(rf"^{re.escape(name)}  ", out, re.M)) == 2
    assert "isonorm" in out and "torch" in out and "copy" in out and "speed-up" in out
    assert "layers 3/3" in err
    record = record_of(path)
    assert record["schema"] == 2 and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", record["date"])
    assert record["machine"]["cpu"] and record["machine"]["cores"] >= 1
    assert record["versions"]["torch"] == torch.__version__ and record["versions"]["isonorm"] == isonorm.__version__
    assert record["settings"]["threads"] == 1 and record["settings"]["min_time_s"] == 0
    assert ("gpu" in record) == (device == "cuda")
    assert [row["case"] for row in record["rows"]] == names
    for row in record["rows"]:
        assert row["median_s"] > 0 and row["floor_s"] > 0 and row["spread"] >= 0 and row["samples"] > 0
        assert math.isclose(row["ratio"], row["median_s"] / row["floor_s"])
        assert row["floor"] == "copy" and row["bytes"] > 0 and 0 <= row["error"] < 0.1
        assert list(row["peers"]) == ["torch"] and row["peers"]["torch"]["median_s"] > 0


@pytest.mark.parametrize("text", [*PROBLEMS, "layernorm x=4x8 dtype=bf16 param=bf16 act=hardswish residual=stream"])
def test_every_kind_of_case_is_right(capsys, text):
    code, out, _ = run(capsys, "layers", *TINY, "--device", "cpu", "--peers", "torch", "--case", text)
    assert code == 0 and layers.WRONG not in out, out


def test_a_wrong_result_is_told(capsys, monkeypatch):
    honest = layers.ISONORM.build

    def shifted(*arguments):
        built = honest(*arguments)
        return dataclasses.replace(built, call=lambda x, r: tuple(y + 1 for y in built.call(x, r)))

    monkeypatch.setattr(layers, "ISONORM", dataclasses.replace(layers.ISONORM, build=shifted))
    code, out, _ = run(
        capsys, "layers", *TINY, "--device", "cpu", "--peers", "torch", "--case", "layernorm x=16x32 pass=train"
    )
    assert code == 1 and re.search(r"\d!", out) and "rounding the results does not explain" in out


def test_what_isonorm_hands_to_torch_is_noticed():
    norm = isonorm.torch.LayerNorm(8)
    with peers.watched_for_fallback() as handed:
        norm(torch.ones(2, 8))
        assert not handed
        norm.to("meta")(torch.ones(2, 8, device="meta"))
        assert handed


def test_who_fails_is_left_out_with_the_reason(capsys, monkeypatch, tmp_path):
    def fails(*_):
        raise RuntimeError("\n  no such kernel\nand more")

    monkeypatch.setitem(peers.PEERS, "torch", dataclasses.replace(peers.PEERS["torch"], build=fails))
    path = tmp_path / "record.json"
    code, out, _ = run(
        capsys, "layers", *TINY, "--device", "cpu", "--peers", "torch", "--case", "rmsnorm x=16x32", "--save", path
    )
    assert code == 0 and "left out: torch: RuntimeError: no such kernel (2 cases)" in out
    left_out = record_of(path)["left_out"]
    assert [entry["peer"] for entry in left_out] == ["torch", "torch"] and "no such kernel" in left_out[0]["reason"]

    monkeypatch.setattr(layers, "ISONORM", dataclasses.replace(layers.ISONORM, build=fails))
    code, out, _ = run(
        capsys, "layers", *TINY, "--device", "cpu", "--peers", "", "--case", "rmsnorm x=16x32", "--save", path
    )
    assert code == 1 and "no case was measured" in out and len(record_of(path)["skipped"]) == 2


def test_peers_that_need_a_gpu_are_left_out_on_a_cpu(capsys):
    code, out, err = run(
        capsys, "layers", *TINY, "--device", "cpu", "--peers", "native,liger", "--case", "layernorm x=16x32 pass=train"
    )
    assert code == 0 and "native is left out: it needs a GPU" in err and "liger is left out" in err
    assert "speed-up" in out


def test_what_compile_makes_of_the_formula_is_a_peer(capsys, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    code, out, _ = run(
        capsys, "layers", *TINY, "--device", "cpu", "--peers", "compile", "--case", "groupnorm x=4x8x2x2 groups=2"
    )
    assert code == 0 and "compiled" in out


# The other parts


def test_overhead_is_measured_and_recorded(capsys, tmp_path, monkeypatch, device):
    monkeypatch.setattr(overhead, "QUICK_BATCHES", 2)
    path = tmp_path / "record.json"
    code, out, _ = run(capsys, "overhead", "--quick", "--device", device, "--save", path)
    assert code == 0
    for subject in overhead.SUBJECTS:
        assert re.search(rf"^{subject.name} ", out, re.M)
    rows = record_of(path)["overhead"]
    assert [row["module"] for row in rows] == [subject.name for subject in overhead.SUBJECTS] + [overhead.LEAST]
    for row in rows[:-1]:
        for who in ("isonorm", "torch"):
            assert set(row[who]) == {"forward_s", "backward_s", "no_grad_s"} and min(row[who].values()) > 0
    assert gc.isenabled()


def test_a_training_step_is_measured_and_recorded(capsys, tmp_path, device):
    path = tmp_path / "record.json"
    options = ["--batch", 2, "--image", 64, "--without-norms", "--device", device]
    code, out, err = run(capsys, "step", "--quick", *options, "--save", path)
    assert code == 0, out + err
    assert "batch 2, 64x64" in out and "bf16 autocast, channels last" in out and "f32" in out
    assert out.count("The losses of PyTorch and isonorm agree") == 2 and out.count("of PyTorch's step") == 2
    settings = record_of(path)["step"]
    assert [setting["dtype"] for setting in settings] == ["bf16", "f32"]
    for setting in settings:
        assert setting["agrees"] is True and setting["batch"] == 2 and setting["image"] == 64
        assert list(setting["results"]) == ["torch", "isonorm", "without norms"]
        for result in setting["results"].values():
            assert result["median_s"] > 0 and ("peak_bytes" in result) == (device == "cuda")
        assert len(setting["results"]["isonorm"]["losses"]) >= 1


def test_losses_that_differ_are_told():
    results = {name: models.Result(name, timing.Times([1.0]), values=[2.0]) for name in (step.EAGER, step.OWN)}
    outcome = step.Outcome(step.SETTINGS[0], 2, 64, "here", False, [2.01], results)
    assert outcome.agrees() is True
    assert math.isclose(outcome.allowed(), 0.04 + 4 * 0.01)
    for wrong in (2.1, math.nan):
        results[step.OWN].values = [wrong]
        assert outcome.agrees() is False and "DO NOT AGREE" in step.text([outcome])
    json.dumps(outcome.recorded(), allow_nan=False)
    results[step.OWN] = models.Result(step.OWN, reason="no kernel")
    assert outcome.agrees() is None and "left out: isonorm: no kernel" in step.text([outcome])


def test_the_resnet_is_the_one_that_everybody_means():
    own = ResNet50()
    assert sum(p.numel() for p in own.parameters()) == 25_557_032
    theirs = pytest.importorskip("torchvision").models.resnet50(weights=None)
    shapes = lambda model: {name: tuple(t.shape) for name, t in model.state_dict().items()}
    assert shapes(own) == shapes(theirs)
    own.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(own.eval()(x), theirs.eval()(x))


def test_blocks_are_measured_and_recorded(capsys, tmp_path, monkeypatch, device):
    monkeypatch.setattr(models, "compiled", lambda module: module)
    monkeypatch.setattr("isonorm.bench.block.compiled", lambda module: module)
    path = tmp_path / "record.json"
    options = ["--block-batch", 1, "--length", 16, "--width", 64, "--layers", 2, "--compile", "--device", device]
    code, out, err = run(capsys, "block", "--quick", *options, "--save", path)
    assert code == 0, out + err
    assert "2 GPT blocks with LayerNorm" in out and "2 GPT blocks with RMSNorm" in out and "x is 1x16x64" in out
    blocks = record_of(path)["block"]
    assert [block["norm"] for block in blocks] == ["LayerNorm", "RMSNorm"]
    for block in blocks:
        assert list(block["results"]) == ["torch", "isonorm", "compile", "isonorm+compile"]
        for result in block["results"].values():
            assert result["forward_s"] > 0 and result["forward_backward_s"] > 0
            assert result["error"] < (1e-5 if block["dtype"] == "f32" else 0.1)


def test_a_model_that_does_not_run_is_left_out():
    def broken():
        raise RuntimeError("no")

    both = [models.Contestant("a", lambda: lambda: torch.ones(())), models.Contestant("b", broken)]
    results = models.compete(both, torch.device("cpu"), 2, 3, 1, lambda what: None)
    assert len(results["a"].times.samples) == 2 and results["a"].values == [1.0]
    assert results["b"].times is None and results["b"].reason == "RuntimeError: no"


def test_too_little_memory_is_told_from_other_errors():
    def full():
        raise torch.cuda.OutOfMemoryError("full")

    with pytest.raises(models.OutOfMemory):
        models.compete([models.Contestant("a", full)], torch.device("cpu"), 1, 1, 1, lambda what: None)


# The command line


def test_all_parts_run_by_themselves(capsys, monkeypatch):
    ran = []
    for part in ("layers", "overhead", "step", "block"):
        monkeypatch.setattr(f"isonorm.bench.run.Bench.{part}", lambda self, *_, part=part: ran.append(part))
    code, out, _ = run(capsys, "--device", "cpu")
    assert code == 0 and ran == ["layers", "overhead", "step", "block"] and f"torch {torch.__version__}" in out


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["layers", "--case", "batchnrom x=4x8"], "unknown op 'batchnrom'"),
        (["layers", "--peers", "torch,tensorflow"], "unknown peer 'tensorflow'; expected some of torch, native"),
        (["step", "--dtypes", "f16"], "unknown type 'f16'"),
        (["overhead", "--batch", "4"], "--batch is for step, not for overhead"),
        (["step", "--case", "layernorm x=4x8"], "--case is for layers, not for step"),
        (["layers", "--compile"], "--compile and --no-compile are for step and block"),
        (["--device", "tpu"], "--device tpu: expected cpu, cuda or cuda:N"),
        (["layers", "--quick", "--device", "cpu", "--save", "/nowhere/at/all.json"], "/nowhere/at/all"),
    ],
)
def test_what_is_not_as_asked_is_told(capsys, arguments, reason):
    code, out, err = run(capsys, *arguments)
    assert code == 2 and reason in err.splitlines()[-1] and "Traceback" not in err + out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_told(capsys):
    code, _, err = run(capsys, "--device", "cuda")
    assert code == 2 and "finds no GPU" in err


@pytest.mark.parametrize("arguments", [["nothing"], ["--threads", "0"], ["--min-time", "-1"], ["--batch", "x"]])
def test_what_the_parser_refuses(capsys, arguments):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2 and "usage" in capsys.readouterr().err


def test_the_module_is_a_program():
    told = subprocess.run([sys.executable, "-m", "isonorm.bench", "--help"], capture_output=True, text=True, check=True)
    assert "python -m isonorm.bench" in told.stdout and "overhead" in told.stdout


# How times are taken


def test_medians_and_spreads():
    times = timing.Times([float(n) for n in range(11)])
    assert (times.median, times.least) == (5.0, 0.0) and math.isclose(times.spread, 8 / 5)
    assert timing.Times([2.0]).spread == 0 and times.scaled(2.0).median == 10.0


def test_all_take_turns():
    order = []

    class Run:
        def __init__(self, name):
            self.name = name

        def seconds(self):
            order.append(self.name)
            return 1.0

    times = timing.take_turns({"a": Run("a"), "b": Run("b")}, 0.0, turns=2)
    a_turn = ["a"] * (1 + timing.FEWEST_SAMPLES) + ["b"] * (1 + timing.FEWEST_SAMPLES)
    assert order == a_turn * 2 and len(times["a"].samples) == 2 * timing.FEWEST_SAMPLES
