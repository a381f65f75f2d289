"""transformers loads the weights that a run exports and computes the same losses."""

import copy
import json
import math

import pytest
import tiny_runs as tiny
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

SIZES = {"hidden_size": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn_size": 46, "vocab_size": 67}
MODELS = {"llama": SIZES, "llama with scaled rotary positions, tied": SIZES | {
              "tied_embeddings": True, "rope_scaling": {"factor": 8.0, "original_context": 16.0}},
          "mistral, linear": SIZES | {"architecture": "mistral", "rope_scaling": {"type": "linear", "factor": 3.0}},
          "llama, dynamic": SIZES | {"initializer_range": 0.2, "rope_scaling": {
              "type": "dynamic", "factor": 3.0, "original_context": 16.0}},
          "qwen2, yarn": SIZES | {"architecture": "qwen2", "rope_scaling": {
              "type": "yarn", "factor": 4.0, "original_context": 12.0, "attention_factor": 1.2}},
          "mistral": SIZES | {"architecture": "mistral"}, "qwen2": SIZES | {"architecture": "qwen2"},
          "qwen3": SIZES | {"architecture": "qwen3", "head_dim": 12}, "olmo2": SIZES | {"architecture": "olmo2"},
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
    """Mean loss over all labels, with a forward pass for each document of a model that has seen no other: with dynamic
    rotary scaling transformers keeps the frequencies of the longest one."""
    fresh = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    total, labels = 0.0, 0
    with torch.no_grad():
        for document in DOCUMENTS:
            if len(document) > 1:
                ids, model = torch.tensor([document]), copy.deepcopy(fresh)
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
    loaded = AutoModelForCausalLM.from_pretrained(model)
    assert (type(loaded).__name__.lower().removesuffix("forcausallm").removesuffix("lmheadmodel")
            == name.split()[0].strip(","))
    text = torch.tensor([DOCUMENTS[0][:4]])
    continued = loaded.generate(text, attention_mask=torch.ones_like(text), min_new_tokens=3, max_new_tokens=3,
                                do_sample=False)
    assert continued.shape == (1, 7) and continued.max() < 67
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


# What a job sets beside model.path of a model of 16 positions, and what the export of its run then tells.
LONGER = {
    "yarn": ({"factor": 3.0}, {"factor": 3.0, "original_max_position_embeddings": 16, "beta_fast": 32.0,
                               "beta_slow": 1.0}),
    "llama3": ({"factor": 3.0, "original_context": 16.0}, {
        "factor": 3.0, "original_max_position_embeddings": 16, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
    "linear": ({"factor": 3.0}, {"factor": 3.0}),
}


@pytest.mark.parametrize("kind", LONGER)
def test_training_goes_on_at_longer_context(tmp_path, data, kind):
    given, told = LONGER[kind]
    torch.manual_seed(5)
    config = LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         intermediate_size=46, vocab_size=67, max_position_embeddings=16,
                         initializer_range=0.3)  # so that positions count
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "short")
    longer = {"path": str(tmp_path / "short"), "rope_theta": 2e4, "rope_scaling": {"type": kind} | given}
    log, out = train(tmp_path, data, [(48, "1,2,1")], model=longer, run={"steps": 2, "checkpoint_every": 1})
    exported = out / "checkpoints" / "step-00000001" / "model"
    written = json.loads((exported / "config.json").read_text())
    assert written["rope_theta"] == 2e4 and written["max_position_embeddings"] == 48
    assert written["rope_scaling"] == {"rope_type": kind} | told
    assert log[-1]["loss"] == pytest.approx(loss_in_transformers(exported), rel=ROUNDING)
    plain, _ = train(tmp_path, data, [(48, "1,2,1")], run={"steps": 1},
                     model={"path": str(exported), "rope_scaling": {"factor": 0.0}})
    assert plain[0]["loss"] != pytest.approx(log[-1]["loss"], rel=1e-3)


def test_training_goes_on_at_longer_context_with_dynamic_scaling(tmp_path, data):
    torch.manual_seed(7)
    config = LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         intermediate_size=46, vocab_size=67, max_position_embeddings=16,
                         initializer_range=0.3)  # so that positions count
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "short")
    longer = {"path": str(tmp_path / "short"), "rope_scaling": {"type": "dynamic", "factor": 2.0}}
    buckets = [(48, "ring=2,ulysses=2"), (20, "1,2,2")]
    log, out = train(tmp_path, data, buckets, model=longer, run={"steps": 2, "checkpoint_every": 1})
    exported = out / "checkpoints" / "step-00000001" / "model"
    written = json.loads((exported / "config.json").read_text())
    assert written["rope_scaling"] == {"rope_type": "dynamic", "factor": 2.0}
    assert written["max_position_embeddings"] == 16, "from which transformers reads the original context"
    assert log[-1]["loss"] == pytest.approx(loss_in_transformers(exported), rel=ROUNDING)
    again, _ = train(tmp_path, data, [(48, "1,2,1")], model={"path": str(exported)}, run={"steps": 1})
    assert again[0]["loss"] == pytest.approx(log[-1]["loss"], rel=ROUNDING)
    plain, _ = train(tmp_path, data, [(48, "1,2,1")], run={"steps": 1},
                     model={"path": str(exported), "rope_scaling": {"factor": 0.0}})
    assert plain[0]["loss"] != pytest.approx(log[-1]["loss"], rel=1e-3)


def prepared(folder, *options):
    """A corpus of text with its tokenizer."""
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": "tell me a tale of two cities " * (i + 1)}) + "\n"
                                               for i in range(8)))
    done = tiny.run([tiny.PROGRAM, "data", "prepare", "--input", folder / "text.jsonl", "--out", folder / "data",
                     *options])
    assert done.returncode == 0, done.stderr
    return folder / "data"


def export(out, *arguments):
    done = tiny.run([tiny.PROGRAM, "export", *arguments, "--out", out])
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{out}\n" and done.stderr == ""
    return out


def answer(folder):
    """What tokenizer and model of a folder make of a text; both know where it ends."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    ids = model.generate(**tokenizer("tell me", return_tensors="pt"), max_new_tokens=4, do_sample=False)
    assert tokenizer.eos_token_id == model.config.eos_token_id == model.generation_config.eos_token_id
    return tokenizer, model, tokenizer.decode(ids[0])


def test_a_trained_model_with_a_trained_tokenizer_generates_from_its_export_and_from_every_checkpoint(tmp_path):
    data = prepared(tmp_path, "--tokenizer", "train:280")
    sizes = {key: value for key, value in SIZES.items() if key != "vocab_size"}
    _, out = train(tmp_path, data, [(48, "1,2,1")], model=sizes, run={"steps": 2, "checkpoint_every": 1})
    tokenizer, model, text = answer(export(tmp_path / "full", out))
    assert type(model).__name__ == "LlamaForCausalLM" and model.dtype == torch.float32
    assert len(tokenizer) == model.config.vocab_size == model.get_input_embeddings().weight.shape[0]
    assert tokenizer.eos_token == "<|endoftext|>" and tokenizer.eos_token in tokenizer.all_special_tokens
    assert text.startswith("tell me")
    assert answer(out / "checkpoints/step-00000002/model")[2] == text
    padded = AutoModelForCausalLM.from_pretrained(export(tmp_path / "padded", out, "--pad-vocab", "64"))
    assert padded.config.vocab_size == padded.get_input_embeddings().weight.shape[0] == 320
    head, rows = padded.get_output_embeddings().weight, model.config.vocab_size
    assert 256 < rows < 320 and head[:rows].equal(model.get_output_embeddings().weight)
    assert torch.allclose(head[rows:], head[:rows].mean(0).expand(320 - rows, -1), atol=1e-6)
    ids = torch.arange(rows)[None]
    with torch.no_grad():
        more = (padded(ids, labels=ids).loss - model(ids, labels=ids).loss).item()
    assert 0 < more <= math.log(320 / rows) + 1e-6
    first = export(tmp_path / "half", out, "--step", "1", "--dtype", "bf16")
    rounded = AutoModelForCausalLM.from_pretrained(first, dtype="auto").state_dict()
    exact = AutoModelForCausalLM.from_pretrained(out / "checkpoints/step-00000001/model").state_dict()
    assert all(rounded[name].equal(exact[name].bfloat16()) for name in exact)
    answer(first)


def test_a_model_that_was_continued_keeps_its_settings_and_its_tokenizer_with_its_chat_template(tmp_path):
    first = prepared(tmp_path, "--tokenizer", "train:280")
    tokenizer = AutoTokenizer.from_pretrained(first)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    start = tmp_path / "start"
    tokenizer.save_pretrained(start)
    config = LlamaConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                         intermediate_size=46, vocab_size=len(tokenizer), pretraining_tp=3,
                         bos_token_id=None, eos_token_id=tokenizer.eos_token_id)
    model = AutoModelForCausalLM.from_config(config)
    model.generation_config.repetition_penalty = 1.5
    model.save_pretrained(start)
    data = prepared(tmp_path, "--tokenizer", start, "--force")
    _, out = train(tmp_path, data, [(48, "1,2,1")], model={"path": str(start)}, run={"steps": 1})
    tokenizer, model, _ = answer(export(tmp_path / "export", out / "checkpoints/step-00000001"))
    assert model.config.pretraining_tp == 3 and model.generation_config.repetition_penalty == 1.5
    assert tokenizer.apply_chat_template([{"content": "a tale"}], tokenize=False) == "a tale"


def test_an_export_says_what_it_can_not_take(tmp_path, data):
    _, out = train(tmp_path, data, [(48, "1,2,1")], model=SIZES, run={"steps": 1})

    def refused(*arguments):
        done = tiny.run([tiny.PROGRAM, "export", *arguments, "--out", tmp_path / "export"])
        assert done.returncode == 2 and not (tmp_path / "export").exists()
        return done.stderr

    assert f"{out} has no checkpoint of step 2, but of 1. Give --step one of these." in refused(out, "--step", "2")
    assert f"{tmp_path}/none is no run folder" in refused(tmp_path / "none", "--step", "2")
    assert "holds no complete checkpoint" in refused(tmp_path)
    assert "--pad-vocab: Value 0 not in range" in refused(out, "--pad-vocab", "0")
    done = tiny.run([tiny.PROGRAM, "export", out, "--out", tmp_path / "export"])
    assert done.returncode == 0 and "has no tokenizer" in done.stderr
