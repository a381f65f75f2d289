"""The golden file: losses, gradient norms and final weights of 66 jobs of three steps.

Refactoring must reproduce them bit for bit, unless it changes the order of sums.

    tests/system/golden.py [--write] [--bits] [--only WORD]...

Runs the jobs and compares them with golden.json. With --bits every bit must be equal (on the machine that wrote the
file); otherwise fp64 must agree to 1e-12 and fp32 to 1e-5. --write writes the file again. SWITCHYARD_PROGRAM is the
program (default: build/switchyard)."""

import argparse
import hashlib
import json
import math
import sys
import tempfile
from pathlib import Path

import numpy
import tiny_runs as tiny
from safetensors import safe_open

FILE = Path(__file__).with_name("golden.json")
STEPS = 3
RELATIVE = {"fp64": 1e-12, "fp32": 1e-5}

# Nothing divides evenly: there are 5 layers, and no tensor degree divides the vocabulary and feed-forward sizes.
SIZES = {"hidden_size": 32, "layers": 5, "heads": 4, "kv_heads": 2, "ffn_size": 46, "vocab_size": tiny.VOCAB + 3}
GPT2 = {"architecture": "gpt2", "hidden_size": 32, "layers": 5, "heads": 4, "vocab_size": tiny.VOCAB + 3}
MODELS = {"llama": SIZES, "tied": SIZES | {"tied_embeddings": True}, "mistral": SIZES | {"architecture": "mistral"},
          "qwen2": SIZES | {"architecture": "qwen2"}, "qwen3": SIZES | {"architecture": "qwen3", "head_dim": 12},
          "gpt2": GPT2,
          "unfused": SIZES | {"attention": "unfused"}, "dropout": GPT2 | {"attention": "unfused", "dropout": 0.2}}


def stage(ranks, tp, first, end):
    return {"ranks": ranks, "mesh": {"data": len(ranks) // tp, "outer": tp}, "layers": [first, end]}


TWO_GROUPS = {"groups": [{"stages": [stage([0, 1], 2, 0, 5)]}, {"stages": [stage([2], 1, 0, 2), stage([3], 1, 2, 5)]}]}
UNLIKE_STAGES = {"groups": [{"stages": [stage([2, 0], 2, 0, 2), stage([1], 1, 2, 3), stage([3], 1, 3, 5)]}]}
OTHER_SPLITS = {"groups": [{"stages": [stage([0, 1, 2, 3], 4, 0, 5)]}],
                "splits": [{"parameter": "*.down_proj.weight", "cuts": [{"dim": 0, "parts": 4}]},
                           {"parameter": "model.layers.1.mlp.*_proj.weight",
                            "cuts": [{"dim": 0, "parts": 2}, {"dim": 1, "parts": 2}]},
                           {"parameter": "model.embed_tokens.weight", "cuts": [{"dim": 1, "parts": 2}]}]}


def pipeline(schedule, pp=2, **settings):
    return {"pp": pp, "schedule": schedule, "micro_batch_tokens": 60, **settings}


# One strategy for all documents; the models alternate.
STATIC = {
    "one rank": "1,1,1", "dp 2": "2,1,1", "dp 4": "4,1,1", "tp 2": "1,2,1", "tp 4": "1,4,1", "pp 2": "1,1,2",
    "dp 2 tp 2": "2,2,1",
    "dp 2 pp 2": "2,1,2", "tp 2 pp 2": "1,2,2", "dp 2 tp 2 pp 2": "2,2,2", "pp 4": "1,1,4",
    "gpipe": pipeline("gpipe"), "1f1b": pipeline("1f1b", 3), "interleaved": pipeline("interleaved"),
    "zero-bubble": pipeline("zero-bubble"),
    "zero-bubble cap": pipeline("zero-bubble", 3, activation_cap=2), "zb-v": pipeline("zb-v"),
    "zb-v cap": pipeline("zb-v", activation_cap=3),
    "gpipe tp 2": pipeline("gpipe", tp=2), "interleaved tp 2": pipeline("interleaved", tp=2),
    "zero-bubble tp 2": pipeline("zero-bubble", tp=2),
    "zb-v tp 2": pipeline("zb-v", tp=2), "zb-v dp 2": pipeline("zb-v", dp=2),
    "zero-bubble dp 2": pipeline("zero-bubble", dp=2),
    "selective": {"tp": 2, "recompute": "selective"}, "full": {"tp": 2, "recompute": "full"},
    "full pp 2": pipeline("1f1b", recompute="full"),
    "full zb-v": pipeline("zb-v", recompute="full"),
    "selective zero-bubble": pipeline("zero-bubble", recompute="selective"),
    "full interleaved": pipeline("interleaved", recompute="full", tp=2),
    "zero 0": {"dp": 2, "zero": 0}, "zero 0 tp 2": {"dp": 2, "tp": 2, "zero": 0},
    "zero 0 pp 2": {"dp": 2, "pp": 2, "zero": 0},
    "whole tokens": {"tp": 2, "sequence_parallel": False},
    "whole tokens tp 4": {"tp": 4, "sequence_parallel": False, "recompute": "selective"},
    "two documents": {"dp": 2, "micro_batch_sequences": 2},
    "one document": {"tp": 2, "pp": 2, "micro_batch_sequences": 1},
    "two groups": TWO_GROUPS, "stages unlike": UNLIKE_STAGES, "other splits": OTHER_SPLITS,
}
# Strategies of the buckets, the longest first, and further settings of [run].
SWITCHING = {
    "tp to dp": (["1,4,1", "4,1,1"], {}), "pp to dp": (["1,1,4", "4,1,1"], {}), "tp pp to dp": (["1,2,2", "4,1,1"], {}),
    "dp to tp": (["4,1,1", "1,4,1"], {}), "three": (["1,2,2", "2,2,1", "4,1,1"], {}),
    "four": (["1,4,1", "1,2,2", "2,1,2", "4,1,1"], {}),
    "home last": (["1,2,2", "4,1,1"], {"home": 1}), "order": (["1,2,2", "2,2,1", "4,1,1"],
                                                              {"order": [2, 0, 1], "home": 2}),
    "not prepared ahead": (["1,4,1", "2,1,2"], {"prefetch": False}), "fewer ranks": (["1,4,1", "1,1,2", "1,1,1"], {}),
    "zb-v to zero-bubble": ([pipeline("zb-v", tp=2), pipeline("zero-bubble", dp=2)], {}),
    "interleaved to dp": ([pipeline("interleaved", recompute="full"), "2,1,1"], {}),
    "to two groups": (["1,2,2", TWO_GROUPS], {}),
    "from unlike stages": ([UNLIKE_STAGES, "2,2,1"], {"home": 1}),
    "zero 0 to zero 0": ([{"tp": 2, "dp": 2, "zero": 0}, {"dp": 4, "zero": 0}], {}),
    "splits to dp": ([OTHER_SPLITS, "4,1,1"], {}),
}
FP32 = {"dp 2", "tp 2", "dp 2 tp 2 pp 2", "zero-bubble tp 2", "zb-v", "full", "two groups", "tp pp to dp",
        "three", "order"}
LLAMA_ONLY = {"other splits", "splits to dp"}  # they use names of its parameters
LENGTHS = [tiny.LONGEST, 24, 12, 6]


def jobs():
    """(name, model, strategies, settings of [run], precision)."""
    cases = [(name, [strategy], {}) for name, strategy in STATIC.items()] + [(name, *case)
                                                                             for name, case in SWITCHING.items()]
    models = list(MODELS)
    for number, (name, strategies, settings) in enumerate(cases):
        model = "llama" if name in LLAMA_ONLY else models[number % len(models)]
        yield f"{name}, {model}, fp64", model, strategies, settings, "fp64"
        if name in FP32:
            yield f"{name}, {model}, fp32", model, strategies, settings, "fp32"


def final_weights(out):
    """The complete master weights of the last checkpoint by name, from the shards of all ranks."""
    state = max(out.glob("checkpoints/step-*")) / "state"
    entries = [entry for entry in json.loads((state / "manifest.json").read_text())["entries"]
               if entry["part"] == "master"]
    weights = {}
    for tensor in sorted({entry["tensor"] for entry in entries}):
        shards = [entry for entry in entries if entry["tensor"] == tensor]
        whole = None
        for shard in shards:
            with safe_open(state / shard["file"], "numpy") as file:
                values = file.get_tensor(shard["key"])
            if whole is None:
                whole = numpy.full([max(s["hi"][dim] for s in shards) for dim in range(values.ndim)],
                                   math.nan, values.dtype)
            whole[tuple(slice(lo, hi) for lo, hi in zip(shard["lo"], shard["hi"]))] = values
        weights[tensor] = whole
    return weights


def run_job(folder, corpus, strategies, model, settings, precision):
    """The job's results: losses, norms, the sum of each parameter by name, and a hash of all bits of the weights."""
    buckets = []
    for number, (length, strategy) in enumerate(zip(LENGTHS, strategies)):
        if "groups" in strategy:
            path = folder / f"strategy-{number}.json"
            path.write_text(json.dumps(strategy))
            strategy = path
        buckets.append((length, strategy))
    # Without eps, gradients that are zero except for rounding, such as those of key biases, would become full updates.
    job = tiny.write_job(folder / "job.toml", corpus, buckets, model=MODELS[model], optimizer={"eps": 1e-3},
                         run={"steps": STEPS, "checkpoint_every": STEPS, "precision": precision,
                              "trace_step": 0, **settings})
    log = tiny.train(job, "--out", folder / "out")
    weights = final_weights(folder / "out")
    bits = hashlib.sha256(b"".join(name.encode() + values.tobytes() for name, values in weights.items())).hexdigest()
    return {"losses": [entry["loss"] for entry in log], "norms": [entry["grad_norm"] for entry in log], "weights": bits,
            "sums": [math.fsum(values.ravel().astype(float)) for values in weights.values()],
            "largest": max(values.size for values in weights.values())}


def differences(found, expected, precision, bits):
    """The differences, one per line."""
    if bits:
        return [f"{key}: {found[key]}, expected {expected[key]}" for key in ("losses", "norms", "weights", "sums")
                if found[key] != expected[key]]
    # Weights are of order 1 and may cancel in a sum, so its bound is proportional to their number.
    slack = {"losses": 0, "norms": 0, "sums": RELATIVE[precision] * found["largest"]}
    return [f"{key}: {found[key]}, expected {expected[key]}" for key in slack
            if len(found[key]) != len(expected[key]) or
            not all(math.isclose(a, b, rel_tol=RELATIVE[precision], abs_tol=slack[key])
                    for a, b in zip(found[key], expected[key]))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--bits", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    expected = {} if arguments.write else json.loads(FILE.read_text())
    results, wrong = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        corpus = tiny.write_corpus(Path(folder) / "corpus", tiny.random_documents(1, 40))
        for name, model, strategies, settings, precision in jobs():
            if arguments.only and not any(word in name for word in arguments.only):
                continue
            place = Path(folder) / name
            place.mkdir()
            results[name] = run_job(place, corpus, strategies, model, settings, precision)
            lines = [] if arguments.write else differences(results[name], expected[name], precision, arguments.bits)
            wrong += bool(lines)
            print("\n  ".join([name, *lines]), flush=True)
    if arguments.write:
        FILE.write_text(json.dumps(results, indent=0) + "\n")
    print(f"{len(results)} jobs, {wrong} of them differ from the golden file" if not arguments.write
          else f"{len(results)} jobs written to {FILE}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
