"""Random wrong jobs end with a message: wrong types, absurd numbers, missing and misplaced tables.

SWITCHYARD_RANDOM_JOBS is the number of jobs, SWITCHYARD_RANDOM_SEED the number of the first; a job depends only on its
number."""

import copy
import json
import os
import random
import resource
import subprocess

import pytest
import tiny_runs as tiny

SEED = int(os.environ.get("SWITCHYARD_RANDOM_SEED", 1))
COUNT = int(os.environ.get("SWITCHYARD_RANDOM_JOBS", 60))
MEMORY = 4 << 30  # address space: what is taken beyond it is refused by the system, and told as an internal error

NUMBERS = [-1, 0, 1, 2, 3, 7, 48, 49, 64, 4095, 65537, 10**6, 2**31 - 1, 2**31, 2**32, 10**12,
           10**15, 2**62, 2**63 - 1, -2**63, 0.5, -0.0, 1e-300,
           1e308, float("inf"), float("-inf"), float("nan")]
WORDS = ["", " ", "auto", "none", "full", "1,1,1", "2,1,1", "1,2,1", "1,1,4", "0,1,1", "-1,1,1",
         "1,1", "1,1,1,1", "9,9,9", "99999999999999999999,1,1",
         "1048576,1048576,1048576", "{", "{}", '{"groups": []}', "[]", "1 TiB", "-5 GiB", "1e30 GiB",
         "1e400", "5 s", "fp64", "zb-v", "zero-bubble",
         "interleaved", "gpt2", "qwen3", "unfused", "7b", "hotspa/7b-16gpu-commoncrawl", "/dev/null",
         "/dev/zero/x", "gr\u00fc\u00dfe", "a\"b\\c", "x" * 3000]
KINDS = [[], [[]], {}, [{}], [1, 2], {"a": 1}, [{"max_length": 48}], True, False]


def literal(value):
    """The value as TOML; floats have a point, tables are inline."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    return json.dumps(value)


def good_job(draw):
    strategy = draw.choice(["1,1,1", "2,1,1", "1,2,1", "1,1,2", {"dp": 1, "pp": 2, "schedule": "zero-bubble"},
                            {"tp": 2, "recompute": "full", "micro_batch_tokens": 96}])
    job = {"seed": 1, "model": {"hidden_size": 32, "layers": 4, "heads": 4, "kv_heads": 2, "ffn_size": 48,
                                "vocab_size": 120},
           "data": {"path": ""}, "batch": {"sequences": 6, "context": 48},
           "bucket": [{"max_length": 48, "strategy": strategy}],
           "optimizer": {"lr": 1e-2}, "run": {"steps": 1, "ranks": 2, "threads": 1, "precision": "fp32"},
           "fabric": {"timeout": "30 s"}}
    if draw.random() < 0.4:
        job["bucket"].append({"max_length": 20, "strategy": "2,1,1"})
    if draw.random() < 0.3:
        job["model"] |= draw.choice([{"architecture": "gpt2", "kv_heads": 4}, {"architecture": "qwen3"},
                                     {"architecture": "gpt2", "kv_heads": 4, "attention": "unfused"}])
    return job


SETTINGS = {"recompute": "full", "schedule": "1f1b", "chunks": 2, "activation_cap": 3, "sequence_parallel": False,
            "micro_batch_tokens": 96,
            "micro_batch_sequences": 2, "zero": 0, "every": 1}
MORE = {"model": {"preset": "7b", "path": "/nowhere", "head_dim": 8, "max_positions": 64, "norm_eps": 1e-6,
                  "rope_theta": 1e4, "dropout": 0.1,
                  "rope_scaling": {"factor": 2.0}, "tied_embeddings": True, "qk_norm": True, "initializer_range": 0.1,
                  "attention": "unfused"},
        "batch": {"tokens": 96, "lengths": "full"}, "parallel": SETTINGS | {"preset": "hotspa/7b-16gpu-commoncrawl"},
        "bucket": [{"strategy": SETTINGS | {"dp": 1, "name": "x", "depth": 2, "inner": 2, "inside": "pipeline"}}],
        "optimizer": {"min_lr": 0.0, "warmup_steps": 2, "decay_steps": 3, "beta1": 0.9, "eps": 1e-8,
                      "clip_norm": 1.0, "schedule": "linear"},
        "run": {"memory_budget": "1 GiB", "checkpoint_every": 1, "keep_checkpoints": 1, "log_every": 1,
                "trace_step": 1, "home": 0, "order": [0],
                "prefetch": True, "device": "cpu"}, "fabric": {"strict": True}, "switch": {"planner": "greedy"}}


def places(node, path=()):
    """Paths of all keys and tables of the job."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def holder_of(job, path):
    for key in path[:-1]:
        job = job[key]
    return job


def value(draw):
    pool = draw.choice([NUMBERS, NUMBERS, WORDS, KINDS])
    return copy.deepcopy(draw.choice(pool))


def change(draw, job):
    path = draw.choice(list(places(job)))
    holder, kind = holder_of(job, path), draw.randrange(8)
    if kind == 0:
        del holder[path[-1]]
    elif kind == 1:
        holder[path[-1]] = [holder[path[-1]]]
    elif kind == 2 and isinstance(holder[path[-1]], list) and holder[path[-1]]:
        holder[path[-1]] = holder[path[-1]][0]
    elif kind == 3:  # another key, with its usual or any value
        path = draw.choice(list(places(MORE)))
        item = holder_of(MORE, path)[path[-1]]
        try:
            holder_of(job, path)[path[-1]] = copy.deepcopy(item) if draw.random() < 0.4 else value(draw)
        except (KeyError, IndexError, TypeError):
            job[path[0]] = copy.deepcopy(MORE.get(path[0], item))
    elif kind < 6 and type(holder[path[-1]]) is int:  # a number that is too large, by a typing error or more
        holder[path[-1]] = draw.choice([10**draw.randrange(3, 19), 2**draw.randrange(10, 63), -holder[path[-1]],
                                        0, holder[path[-1]] * 1000])
    else:
        holder[path[-1]] = value(draw)


def wrong_job(number):
    draw = random.Random(number)
    job = good_job(draw)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        change(draw, job)
    return "\n".join(f"{json.dumps(key)} = {literal(item)}" for key, item in job.items()) + "\n"


def command_of(number, path):
    draw = random.Random(-1 - number)
    kind = draw.choices(["plan", "model", "strategy", "program", "simulate", "planned"], [3, 1, 1, 2, 2, 1])[0]
    if kind == "simulate":
        return ["simulate", path, "--cluster", "demo"]
    if kind == "planned":
        return ["plan", path, "--cluster", "demo", "--seconds", "1"]
    return ["show", kind, path]


def end_of(words):
    return subprocess.run([tiny.PROGRAM, *map(str, words)], capture_output=True, text=True, errors="replace",
                          timeout=tiny.HANG, env=tiny.ENVIRONMENT,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)))


def error_of(words):
    """The fault in how a command ended; "" if there is none."""
    try:
        result = end_of(words)
    except subprocess.TimeoutExpired:
        return f"not done after {tiny.HANG} s"
    if result.returncode not in (0, 1, 2):
        return f"exit status {result.returncode}: {result.stderr}"
    if "internal error" in result.stderr or (result.returncode != 0 and not result.stderr.startswith("switchyard: ")):
        return f"no message: {result.stderr}"
    return ""


@pytest.mark.parametrize("part", range(4))
def test_any_job_ends_well_or_with_a_message(tmp_path, part):
    errors = []
    for number in range(SEED * 10**6 + part, SEED * 10**6 + COUNT, 4):
        path = tmp_path / "job.toml"
        path.write_text(wrong_job(number))
        if message := error_of(command_of(number, path)):
            errors.append(f"job {number}, {command_of(number, 'job.toml')}: {message}\n{path.read_text()}")
    assert not errors, "\n\n".join(errors)
