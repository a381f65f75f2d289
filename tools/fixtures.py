"""Makes tests/fixtures: tiny models saved by transformers, each with a batch and transformers' results for it in fp64.

tools/fixtures.py [FOLDER]: writes the folders of MODELS into FOLDER (default: tests/fixtures). Their format and
conventions are in tests/fixtures/README.md. Weights and tokens come from NumPy's RandomState, whose streams never
change, so each run gives the same files up to rounding.
"""

import math
import sys
from pathlib import Path

import numpy
import torch
from safetensors.numpy import load_file, save_file
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

torch.set_num_threads(1)  # the order of sums doesn't depend on the machine's cores

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT_LENGTHS = (1, 3, 5, 17, 33, 64, 96, 130)  # the first has no label
STEPS = 5
NO_LABEL = -100
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16.0, "beta_slow": 0.5,
        "original_max_position_embeddings": 64}
DYNAMIC = {"rope_type": "dynamic", "factor": 3.0}
LINEAR = {"rope_type": "linear", "factor": 2.5}


def rotary(hidden, layers, heads, kv_heads, ffn, vocab, positions=256, **others):
    return dict(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
                intermediate_size=ffn,
                vocab_size=vocab, max_position_embeddings=positions, bos_token_id=None, eos_token_id=None, **others)


# name: family, settings, and the seed of weights and tokens. Sizes are irregular on purpose: odd numbers of layers,
# prime vocabularies.
MODELS = {
    "llama-gqa": ("llama", rotary(64, 4, 8, 4, 172, 131, rms_norm_eps=1e-5), 1101),
    "llama-tied": ("llama", rotary(48, 3, 6, 6, 116, 103, rms_norm_eps=1e-6, rope_theta=5e5, tie_word_embeddings=True),
                   1102),
    "llama3-rope": ("llama", rotary(64, 2, 4, 2, 136, 113, positions=512, rms_norm_eps=1e-5, rope_scaling=LLAMA3_ROPE),
                    1103),
    # 64 is one of DOCUMENT_LENGTHS: its frequencies are the plain ones still.
    "llama-dynamic": ("llama", rotary(48, 2, 6, 3, 124, 107, positions=64, rms_norm_eps=1e-5, rope_scaling=DYNAMIC),
                      1107),
    "llama-linear": ("llama", rotary(56, 2, 4, 2, 140, 101, rms_norm_eps=1e-5, rope_scaling=LINEAR), 1108),
    "qwen2": ("qwen2", rotary(48, 2, 6, 2, 136, 149, rms_norm_eps=1e-6, rope_theta=1e6, tie_word_embeddings=True),
              1104),
    "qwen3-yarn": ("qwen3", rotary(40, 2, 6, 3, 92, 109, head_dim=16, rms_norm_eps=1e-6, rope_theta=2e3,
                                   rope_scaling=YARN), 1106),
    "olmo2": ("olmo2", rotary(48, 3, 6, 3, 132, 139, rms_norm_eps=1e-5, rope_theta=5e5,
                              pad_token_id=None), 1109),
    "gpt2": ("gpt2", dict(n_embd=40, n_layer=3, n_head=5, vocab_size=127, n_positions=160, attn_pdrop=0.0,
                          embd_pdrop=0.0, resid_pdrop=0.0,
                          bos_token_id=None, eos_token_id=None), 1105),
}
# Standard deviations of weights times the square root of their number of inputs. They are so large that attention isn't
# uniform, gelu's two forms differ and gradients are clipped. Other weights have 0.9, biases 0.2, embeddings 0.08; the
# weights of norms are around 1.
SPREADS = {"q_proj": 1.3, "k_proj": 1.3, "c_attn": 1.3, "c_fc": 1.5, "lm_head": 1.2}


class OnlyFp64(TorchDispatchMode):
    """Refuses operators that make floating-point tensors of fewer bits."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.dtype != torch.float64:
                raise RuntimeError(f"{function} computed in {tensor.dtype}")
        return result


def rms_norm(module):
    """LlamaRMSNorm.forward without its computation in fp32."""
    return lambda x: module.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + module.variance_epsilon))


def kept_shares(scaling, theta, head_dim, frequencies):
    """The share of each frequency that rotary scaling keeps; the rest of it is divided by the factor."""
    context = scaling["original_max_position_embeddings"]
    if scaling["rope_type"] == "llama3":
        # Turns within the original context: from high_freq_factor on as they are, up to low_freq_factor divided,
        # between them a mixture.
        turns = context * frequencies / (2 * torch.pi)
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        shares = ((turns - low) / (high - low)).clamp(0, 1)
    else:
        # YaRN: a mixture between the pairs that make beta_fast and beta_slow turns within the original context.
        first, last = (head_dim * math.log(context / (scaling[key] * 2 * math.pi)) / (2 * math.log(theta))
                       for key in ("beta_fast", "beta_slow"))
        first, last = max(math.floor(first), 0), min(math.ceil(last), head_dim - 1)
        pairs = torch.arange(head_dim // 2, dtype=torch.float64)
        shares = 1 - ((pairs - first) / (last - first)).clamp(0, 1)
    assert {"all", "none", "some"} == {"all" if s == 1 else "none" if s == 0 else "some" for s in shares.tolist()}
    return shares


def rotation(config, length):
    """Frequencies of a head's pairs in fp64 for a document, and what rotated features are multiplied by."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    scaling, theta = config.rope_scaling or {"rope_type": "default"}, config.rope_theta
    if scaling["rope_type"] == "dynamic" and length > config.max_position_embeddings:
        growth = scaling["factor"] * length / config.max_position_embeddings - (scaling["factor"] - 1)
        theta *= growth ** (head_dim / (head_dim - 2))
    frequencies = theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    if scaling["rope_type"] in ("default", "dynamic"):
        return frequencies, 1.0
    if scaling["rope_type"] == "linear":
        return frequencies / scaling["factor"], 1.0
    shares = kept_shares(scaling, theta, head_dim, frequencies)
    frequencies = (1 - shares) * frequencies / scaling["factor"] + shares * frequencies
    return frequencies, 0.1 * math.log(scaling["factor"]) + 1 if scaling["rope_type"] == "yarn" else 1.0


def checked_rotation(module, length):
    """The same, as a new module has it in fp32 that has seen no other document."""
    frequencies, scale = rotation(module.config, length)
    fresh = type(module)(module.config)
    fresh(torch.zeros(1), torch.arange(length)[None])
    torch.testing.assert_close(frequencies, fresh.inv_freq.double(), rtol=1e-6, atol=0)
    assert math.isclose(scale, fresh.attention_scaling, rel_tol=1e-12)
    return frequencies, scale


def rotary_tables(module):
    rotations = {length: checked_rotation(module, length) for length in DOCUMENT_LENGTHS}

    def tables(x, position_ids):
        frequencies, scale = rotations[position_ids.shape[-1]]
        angles = position_ids[..., None].double() * torch.cat((frequencies, frequencies))
        return scale * angles.cos(), scale * angles.sin()
    return tables


def to_fp64(model):
    """Converts the model to fp64, with the parts that transformers would compute in fp32 (with sdpa not softmax)."""
    model.double()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = rms_norm(module)
        elif type(module).__name__.endswith("RotaryEmbedding"):
            module.forward = rotary_tables(module)
    return model


def fill(model, random):
    for name, parameter in sorted(model.named_parameters()):
        values = random.standard_normal(parameter.shape)
        kind, what = name.split(".")[-2:]
        if what == "bias":
            values *= 0.2
        elif parameter.dim() == 1:
            values = 1 + 0.25 * numpy.clip(values, -3, 3)
        elif kind in ("embed_tokens", "wte", "wpe"):
            values *= 0.08
        else:
            inputs = parameter.shape[0 if model.config.model_type == "gpt2" else 1]  # Conv1D stores [in, out]
            values *= SPREADS.get(kind, 0.9) / inputs ** 0.5
        parameter.data.copy_(torch.from_numpy(numpy.float32(values)))


def batch(random, vocabulary):
    lengths = random.permutation(DOCUMENT_LENGTHS).astype(numpy.int64)
    tokens = random.randint(0, vocabulary, lengths.sum()).astype(numpy.int64)
    labels = numpy.append(tokens[1:], NO_LABEL)
    labels[lengths.cumsum() - 1] = NO_LABEL
    return {"tokens": tokens, "doc_lengths": lengths, "labels": labels}


def forward(model, data):
    """Logits of all tokens, and the sum of losses of each document. Each document has its own forward pass."""
    logits, sums = [], []
    splits = data["doc_lengths"].tolist()
    for tokens, labels in zip(torch.from_numpy(data["tokens"]).split(splits),
                              torch.from_numpy(data["labels"]).split(splits)):
        logits.append(model(input_ids=tokens[None], use_cache=False).logits[0])
        sums.append(torch.nn.functional.cross_entropy(logits[-1], labels, ignore_index=NO_LABEL, reduction="sum"))
    return torch.cat(logits), torch.stack(sums)


def expected(model, data):
    """Results of the batch and of STEPS steps of AdamW on it, under the names of expected.safetensors."""
    parameters = dict(model.named_parameters())
    labels = int((data["labels"] != NO_LABEL).sum())
    optimizer = torch.optim.AdamW([{"params": [p for p in parameters.values() if p.dim() >= 2], "weight_decay": 0.1},
                                   {"params": [p for p in parameters.values() if p.dim() < 2], "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    results, losses, norms = {"valid_tokens": torch.tensor([labels])}, [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        with OnlyFp64():
            logits, sums = forward(model, data)
            loss = sums.sum() / labels
            loss.backward()
        if step == 0:
            results |= {"logits": logits, "loss": loss, "doc_loss_sum": sums}
            results |= {f"grad.{name}": parameter.grad.clone() for name, parameter in parameters.items()}
        losses.append(loss)
        norms.append(torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0))
        optimizer.step()
    with torch.no_grad():
        results |= {"grad_norm": norms[0], "train.loss": torch.stack(losses), "train.grad_norm": torch.stack(norms),
                    "train.final_loss": forward(model, data)[1].sum() / labels}
        for name, parameter in parameters.items():
            sums = {"": parameter.reshape(1, -1)}
            if name.endswith("c_attn.bias"):
                sums["_qkv"] = parameter.reshape(3, -1)
            for suffix, parts in sums.items():
                results[f"train.final_sum{suffix}.{name}"] = parts.sum(1)
                results[f"train.final_sumsq{suffix}.{name}"] = parts.square().sum(1)
    return {name: numpy.atleast_1d(numpy.ascontiguousarray(tensor.detach().numpy()))
            for name, tensor in results.items()}


def make_model(folder, family, settings, seed):
    """config.json, model.safetensors and input.safetensors."""
    random = numpy.random.RandomState(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **settings))
    fill(model, random)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file(batch(random, model.config.vocab_size), folder / "input.safetensors")


def results_of(folder):
    """The contents of expected.safetensors, computed from the other files of a folder."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    return expected(to_fp64(model), load_file(folder / "input.safetensors"))


def main(out):
    for name, model in MODELS.items():
        folder = out / name
        make_model(folder, *model)
        results = results_of(folder)
        save_file(results, folder / "expected.safetensors")
        print(f"{folder}: loss {results['loss'][0]:.6f}, norm of the gradient {results['grad_norm'][0]:.6f}",
              flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/fixtures")
