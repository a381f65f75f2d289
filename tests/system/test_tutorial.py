"""docs/tutorial.md: its commands, job and Python lines, in their order, with a small model and small numbers."""

import json
import random
import re
import shlex

import tiny_runs as tiny

BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", (tiny.ROOT / "docs/tutorial.md").read_text(), re.MULTILINE | re.DOTALL)
SMALLER = (("tokens = 65536", "tokens = 3000"), ("context = 8192", "context = 512"),
           ("--context 8192", "--context 512"),
           ("original_context = 2048", "original_context = 128"), ("sequences = 32", "sequences = 4"),
           ("every = 10", "every = 2"), ("checkpoint_every = 10", "checkpoint_every = 2"), ("steps = 20", "steps = 2"),
           ("steps 24", "steps 3"), ("decay_steps=24", "decay_steps=3"))
BASE = """\
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

tokens = Tokenizer(models.BPE())
tokens.pre_tokenizer, tokens.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
tokens.train_from_iterator(["once upon a time"], trainers.BpeTrainer(
    vocab_size=280, initial_alphabet=alphabet, special_tokens=["<s>", "</s>"], show_progress=False))
PreTrainedTokenizerFast(tokenizer_object=tokens, bos_token="<s>", eos_token="</s>").save_pretrained("models/base")
AutoModelForCausalLM.from_config(LlamaConfig(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
    vocab_size=280, max_position_embeddings=128, bos_token_id=0, eos_token_id=1)).save_pretrained("models/base")
"""


def smaller(text):
    for large, small in SMALLER:
        text = text.replace(large, small)
    return text


def test_the_tutorial_works_as_written(tmp_path):
    draw = random.Random(1)
    for part, count in (("train", 30), ("check", 8)):
        (tmp_path / "texts" / part).mkdir(parents=True)
        for i in range(count):
            words = " ".join(draw.choice(["once", "upon", "a", "time"]) for _ in range(draw.choice([5, 20, 100])))
            (tmp_path / "texts" / part / f"{i}.txt").write_text(words)
    base = tiny.run([tiny.PYTHON, "-c", BASE], cwd=tmp_path)
    assert base.returncode == 0, base.stderr
    said = ""
    for language, text in BLOCKS:
        if language == "toml":
            (tmp_path / "longer.toml").write_text(smaller(text))
        elif language == "python":
            done = tiny.run([tiny.PYTHON, "-c", text], cwd=tmp_path)
            assert done.returncode == 0 and done.stdout.lower().startswith(("once", "<s>once", "<s> once")), done
        else:
            for line in smaller(text).splitlines():
                words = shlex.split(line)
                assert words[0] == "build/switchyard"
                done = tiny.run([tiny.PROGRAM, *words[1:]], cwd=tmp_path)
                assert done.returncode == 0, f"{line}\n{done.stderr}"
                said += done.stdout
    assert said.count("Step ") >= 3 and "fits: " in said
    steps = [json.loads(line) for line in (tmp_path / "runs/longer/log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in steps] == [1, 2, 3]
    assert len((tmp_path / "runs/longer/validation.jsonl").read_text().splitlines()) == 2
    config = json.loads((tmp_path / "models/longer/config.json").read_text())
    assert config["rope_scaling"]["rope_type"] == "yarn"
