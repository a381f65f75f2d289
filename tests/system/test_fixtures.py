"""tests/fixtures agrees with tools/fixtures.py and with transformers."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "fixtures"
FP32_ROUNDING, FP64_ROUNDING = 2e-7, 1e-11


def load_script():
    spec = importlib.util.spec_from_file_location("fixtures", ROOT / "tools" / "fixtures.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["fixtures"] = module
    spec.loader.exec_module(module)
    return module


fixtures = load_script()


def assert_same_tensors(actual, expected, rounding):
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (values.dtype, values.shape), name
        assert numpy.abs(actual[name] - values).max() <= rounding * max(1, numpy.abs(values).max()), name


def test_every_model_has_a_folder():
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == set(fixtures.MODELS)


@pytest.mark.parametrize("name", fixtures.MODELS)
def test_the_script_makes_the_same_model_and_batch(tmp_path, name):
    made, kept = tmp_path / name, FOLDER / name
    fixtures.make_model(made, *fixtures.MODELS[name])
    assert {path.name for path in made.iterdir()} | {"expected.safetensors"} == {path.name for path in kept.iterdir()}
    assert json.loads((made / "config.json").read_text()) == json.loads((kept / "config.json").read_text())
    assert_same_tensors(load_file(made / "model.safetensors"), load_file(kept / "model.safetensors"), FP32_ROUNDING)
    assert_same_tensors(load_file(made / "input.safetensors"), load_file(kept / "input.safetensors"), 0)


@pytest.mark.parametrize("name", fixtures.MODELS)
def test_transformers_computes_the_expected_results(name):
    assert_same_tensors(fixtures.results_of(FOLDER / name), load_file(FOLDER / name / "expected.safetensors"),
                        FP64_ROUNDING)


def test_arithmetic_below_fp64_is_refused():
    model = AutoModelForCausalLM.from_pretrained(FOLDER / "qwen2", dtype=torch.float64)
    with pytest.raises(RuntimeError, match="computed in torch.float32"), fixtures.OnlyFp64():
        fixtures.forward(model, load_file(FOLDER / "qwen2" / "input.safetensors"))
