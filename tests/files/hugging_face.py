"""Tiny models made and compared by transformers, the oracle of the configuration tests.

make FOLDER FAMILY...: a random model of each family in FOLDER/FAMILY.
compare A B [A B ...]: both folders of each pair load without missing or unexpected weights and give equal logits.
"""
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, logging

logging.set_verbosity_error()
SIZES = dict(vocab_size=97, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=64)
SETTINGS = {
    "mistral": dict(SIZES, sliding_window=None, rope_theta=1e6),
    "qwen3": dict(SIZES, head_dim=16, tie_word_embeddings=True),
    "olmo2": dict(SIZES, rope_scaling={"type": "linear", "factor": 2.0}, pad_token_id=None),
    "llama": dict(SIZES, attention_bias=True, mlp_bias=True, head_dim=12),
}


def make(folder, families):
    torch.manual_seed(1)
    for family in families:
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **SETTINGS[family]))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        model.save_pretrained(f"{folder}/{family}")


def load(folder):
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    assert (not report["missing_keys"] and not report["unexpected_keys"]
            and not report["mismatched_keys"]), (folder, report)
    return model.eval()


def compare(first, second):
    a, b = load(first), load(second)
    tokens = torch.arange(20).reshape(1, 20) * 7 % a.config.vocab_size
    with torch.no_grad():
        assert torch.equal(a(tokens).logits, b(tokens).logits), (first, second)
    print("equal", type(b).__name__)


if sys.argv[1] == "make":
    make(sys.argv[2], sys.argv[3:])
else:
    for pair in zip(sys.argv[2::2], sys.argv[3::2]):
        compare(*pair)
