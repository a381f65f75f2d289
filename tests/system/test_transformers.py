"""transformers loads the weights that a run exports and computes the same losses."""

import json

import pytest
import tiny_runs as tiny
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

SIZES = {"hidden_size": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn_size": 46, "vocab_size": 67}
MODELS = {"llama": SIZES, "llama with scaled rotary positions, tied": SIZES | {
              "tied_embeddings": True, "rope_scaling": {"factor": 8.0, "original_context": 16.0}},
          "mistral, linear": SIZES | {"architecture": "mistral", "rope_scaling": {"type": "linear", "factor": 3.0}},
          "qwen2, yarn": SIZES | {"architecture": "qwen2", "rope_scaling": {
              "type": "yarn", "factor": 4.0, "original_context": 12.0, "attention_factor": 1.2}},
          "mistral": SIZES | {"architecture": "mistral"}, "qwen2": SIZES | {"architecture": "qwen2"},
          "qwen3": SIZES | {"architecture": "qwen3", "head_dim": 12},
          "gpt2": {"architecture": "gpt2", "hidden_size": 32, "layers": 2, "heads": 4, "vocab_size": 67}}
DOCUMENTS = tiny.random_documents(5, 8, vocab=67)
STEPS = 3
ROUNDING = 1e-6  # relative; exported weights and the norms of transformers are fp32


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A corpus whose documents are all in each batch, so that their order doesn't matter."""
    return tiny.write_corpus(tmp_path_factory.mktemp("data") / "data", DOCUMENTS)


def train(folder, data, buckets, **changes):
    job = tiny.write_job(folder / f"{len(list(folder.iterdir()))}.toml", data, buckets,
                         batch={"sequences": len(DOCUMENTS)}, **changes)
    out = job.with_suffix("")
    return tiny.train(job, "--out", out), out


def loss_in_transformers(folder):
    """Mean loss over all labels, with a forward pass for each document."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    total, labels = 0.0, 0
    with torch.no_grad():
        for document in DOCUMENTS:
            if len(document) > 1:
                ids = torch.tensor([document])
                total += float(model(ids, labels=ids).loss) * (len(document) - 1)
                labels += len(document) - 1
    return total / labels


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_has_the_same_loss_in_transformers(tmp_path, data, name):
    log, out = train(tmp_path, data, [(48, "1,2,2"), (20, "4,1,1")], model=MODELS[name],
                     run={"steps": STEPS, "checkpoint_every": STEPS - 1})
    assert log[-1]["loss"] < log[0]["loss"] - 0.1
    model = out / "checkpoints" / f"step-{STEPS - 1:08}" / "model"
    expected = loss_in_transformers(model)
    assert log[-1]["loss"] == pytest.approx(expected, rel=ROUNDING)
    again, _ = train(tmp_path, data, [(48, "2,1,1")], model={"path": str(model)}, run={"steps": 1})
    assert again[0]["loss"] == pytest.approx(expected, rel=ROUNDING)


def test_a_model_written_by_transformers_in_shards_trains_from_its_loss(tmp_path, data):
    torch.manual_seed(3)
    config = LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         intermediate_size=46,
                         vocab_size=67, max_position_embeddings=64)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model", max_shard_size="20KB")
    assert (tmp_path / "model" / "model.safetensors.index.json").exists()
    log, _ = train(tmp_path, data, [(48, "1,2,1")], model={"path": str(tmp_path / "model")}, run={"steps": 1})
    assert log[0]["loss"] == pytest.approx(loss_in_transformers(tmp_path / "model"), rel=ROUNDING)


def test_training_goes_on_at_longer_context_with_yarn(tmp_path, data):
    torch.manual_seed(5)
    config = LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         intermediate_size=46, vocab_size=67, max_position_embeddings=16)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "short")
    longer = {"path": str(tmp_path / "short"), "rope_theta": 2e4, "rope_scaling": {"type": "yarn", "factor": 3.0}}
    log, out = train(tmp_path, data, [(48, "1,2,1")], model=longer, run={"steps": 2, "checkpoint_every": 1})
    exported = out / "checkpoints" / "step-00000001" / "model"
    written = json.loads((exported / "config.json").read_text())
    assert written["rope_theta"] == 2e4 and written["max_position_embeddings"] == 48
    assert written["rope_scaling"] == {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 16,
                                       "beta_fast": 32.0, "beta_slow": 1.0}
    assert log[-1]["loss"] == pytest.approx(loss_in_transformers(exported), rel=ROUNDING)
