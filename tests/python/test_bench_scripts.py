"""bench/plans_on_hosts.py and bench/step_ratio.py with fake programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

ROOT = Path(__file__).parents[2]

# Makes no hosts; `launch` executes the words after `--`.
TOOL = '''
import os, sys
words = sys.argv[1:]
with open(os.environ["CALLS"], "a") as calls:
    print(" ".join(words), file=calls)
if words[0] == "up" and os.environ.get("NO_HOSTS"):
    sys.exit("cluster: needs root")
if words[0] == "launch":
    words = words[words.index("--") + 1:]
    os.execvp(words[0], words)
'''

PROGRAM = '''
import json, os, shutil, sys, tomllib
from pathlib import Path
words = sys.argv[1:]
def value(option):
    return words[words.index(option) + 1]
if words[0] == "bench":
    with open(os.environ["CALLS"], "a+") as calls:
        print("bench", file=calls, flush=True)
        calls.seek(0)
        number = len(calls.readlines())
    print(json.dumps({"tok_s": 100.0 if number % 2 == 0 else [190.0, 150.0, 200.0][number // 2]}))
    sys.exit(os.environ.get("BREAKS"))
if words[0] == "profile":
    Path(value("--out")).write_text(json.dumps({"links": {"inter_host": {"bandwidth": 5e7}}}))
elif words[0] == "plan":
    job = Path(words[1]).read_text()
    if os.environ.get("KEPT"):
        shutil.copytree(tomllib.loads(job)["data"]["path"], os.environ["KEPT"], dirs_exist_ok=True)
    assert 'memory_budget = "72 MiB"' in job and "tokens = 1000" in job, job
    name = "tp=2" if "--buckets" in words else "tp=2; dp=2"
    Path(value("--out")).write_text("".join(
        f'[[bucket]]\\nmax_length = {length}\\nstrategy = {{ name = "{of}", packing = "balanced" }}\\n'
        for length, of in zip((16384, 1024), name.split("; "))))
    print("Step 1 s")
elif words[0] == "simulate":
    stream = "stream" in Path(words[1]).read_text()
    print(json.dumps({"step_seconds": 2.0 if stream else 1.0, "fits": True}))
elif words[0] == "train":
    if os.environ.get("BREAKS"):
        sys.exit("switchyard: data.path is missing.")
    job = Path(words[1]).read_text()
    rate = 400 if "dp=2" in job else 100 if "stream" in job else 200
    out = Path(value("--out"))
    out.mkdir(parents=True, exist_ok=True)
    line = dict(loss=9.0, tokens=1000, tokens_per_second=rate, peak_bytes_per_rank=[70 << 20])
    (out / "log.jsonl").write_text("".join(json.dumps(line | {"step": step}) + "\\n" for step in (1, 2)))
'''

# Without recomputation it takes 50 MiB more, and a fifth less time; it is the quickest with the most replicas.
PEER = '''
import json, os, sys
words = sys.argv[1:]
def value(option):
    return words[words.index(option) + 1]
replicas, steps = int(value("--strategy").split(",")[0]), int(value("--steps"))
again = "--recompute" in words
peak = 30 * replicas + (0 if again else 50)
loss = 9.5 if os.environ.get("DIFFERS") else 9.1
print("first a line of something else")
seconds = (50 if again else 40) / replicas
print(json.dumps({"tokens": [1000] * steps, "seconds": [seconds] * steps, "losses": [loss] * steps,
                  "start_rss_mib": [100, 100], "peak_rss_mib": [100 + peak, 90 + peak]}))
'''


@pytest.fixture
def bench(tmp_path):
    """Runs a script of bench/ with the fake programs; environment variables control what they do."""
    for name, text in ("tool", TOOL), ("program", PROGRAM):
        (tmp_path / name).write_text(f"#!{sys.executable}\n{text}")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "peer.py").write_text(PEER)

    def run(script, *arguments, **environment):
        command = [sys.executable, ROOT / "bench" / script, "--program", tmp_path / "program", *arguments]
        environment |= {"CALLS": str(tmp_path / "calls"), "PATH": os.environ["PATH"]}
        return subprocess.run(command, env=environment, text=True, capture_output=True, check=False)

    return run


@pytest.fixture
def hosts(bench, tmp_path):
    def run(*arguments, **environment):
        fixed = ["--cluster", tmp_path / "tool", "--out", tmp_path, "--data", tmp_path, "--slots", "1", "--tokens",
                 "1000", "--memory", "72", "--steps", "2"]
        return bench("plans_on_hosts.py", *fixed, *arguments, **environment)

    return run


def calls(tmp_path):
    return (tmp_path / "calls").read_text().splitlines()


def test_a_plan_is_trained_beside_single_strategies_and_those_of_a_peer(hosts, tmp_path):
    done = hosts("--peer", tmp_path / "peer.py", "--peer-name", "fake 1.0", "--rounds", "2")
    assert done.returncode == 0, done.stderr
    assert "--hosts 2 --slots 1 --inter 400mbit --intra 2gbit" in calls(tmp_path)[0]
    assert calls(tmp_path)[-1].startswith("down")
    page = (tmp_path / "plans_on_hosts.md").read_text()
    assert "Links as profiled: inter host 400 Mbit/s." in page
    assert "--slots 1 --memory 72 --rounds 2" in page and str(tmp_path) not in page
    assert "| the plan | to 16384: tp=2; to 1024: dp=2 | 400, 400 | 1.00, 1.00 | 70 |" in page
    assert "| the best single strategy | to 16384: tp=2 | 200, 200 | 2.00, 2.00 | 70 |" in page
    assert "| the usual default | to 16384: tp=2 | 100, 100 | 4.00, 4.00 | 70 |" in page
    assert ("| fake 1.0, within the budget in its first step | `--strategy 2,1,1,1 --zero 3 --recompute` | 40, 40 | "
            "10.00, 10.00 | 60 |" in page)
    assert "| fake 1.0, with any memory | `--strategy 2,1,1,1 --zero 3` | 50, 50 | 8.00, 8.00 | 110 |" in page
    # Two replicas with ZeRO-0 and 3, two tensor parallel ranks, two of Ulysses, two stages; all need recomputation.
    screened = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(screened) == 10 and screened[0] == "| `--strategy 2,1,1,1 --zero 0` | 50 | 110 | no |"
    assert "| `--strategy 1,2,1,1 --zero 0 --recompute` | 20 | 30 | yes |" in screened


def test_only_splits_with_some_numbers_of_replicas_are_tried(hosts, tmp_path):
    done = hosts("--peer", tmp_path / "peer.py", "--peer-dp", "2")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "plans_on_hosts.md").read_text()
    screened = [line for line in page.splitlines() if line.startswith("| `")]
    assert "All strategies of the peer with 2 replicas, one step each:" in page
    assert len(screened) == 4 and all("--strategy 2,1,1,1" in line for line in screened)


def test_documents_of_drawn_lengths_are_cut_from_the_tokens_of_the_corpus(hosts, tmp_path):
    tokens = numpy.arange(40000, dtype="<u2") % 8192
    (tmp_path / "corpus.bin").write_bytes(tokens.tobytes())
    done = hosts("--lengths", "commoncrawl", KEPT=str(tmp_path / "kept"))
    assert done.returncode == 0, done.stderr
    assert "--lengths commoncrawl`" in (tmp_path / "plans_on_hosts.md").read_text()
    drawn = numpy.fromfile(tmp_path / "kept/corpus.bin", dtype="<u2")
    lengths = numpy.fromfile(tmp_path / "kept/corpus.idx", dtype="<i4", count=4096, offset=34)
    assert sum(lengths) == len(drawn)
    assert 300 < numpy.median(lengths) < 550 and max(lengths) > 8192
    few = sum(lengths[:4])
    assert (drawn[:few] == tokens[:few]).all(), "one after the other"


def test_hosts_that_cannot_be_made_and_runs_that_fail_are_reported_and_hosts_taken_down(hosts, tmp_path):
    refused = hosts(NO_HOSTS="1")
    assert refused.returncode == 1 and "failed: cluster: needs root" in refused.stderr
    failed = hosts(BREAKS="1")
    assert failed.returncode == 1 and "switchyard: data.path is missing." in failed.stderr
    assert calls(tmp_path)[-1].startswith("down")
    other = hosts("--peer", tmp_path / "peer.py", DIFFERS="1")
    assert other.returncode == 1 and "train on different documents or another model" in other.stderr
    assert not (tmp_path / "plans_on_hosts.md").exists()


def test_the_step_ratio_is_the_median_of_rounds_in_turn(bench):
    done = bench("step_ratio.py", "--compare", "scaling", "--rounds", "3")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])["scaling"]
    assert result["tok_s"] == {"dp 2, 2 threads": [190.0, 150.0, 200.0], "1 rank, 1 thread": [100.0] * 3}
    assert result["ratio"] == 1.9
    assert (
        "scaling: dp 2, 2 threads 190 tokens/s, 1 rank, 1 thread 100 tokens/s; ratio 1.90 (1.50 to 2.00), goal 1.9" in
        done.stdout)
    sides = [line.split(": ")[1].rsplit(" ", 2)[0] for line in done.stderr.splitlines()]
    assert sides == ["dp 2, 2 threads", "1 rank, 1 thread"] * 3


def test_a_step_that_fails_ends_the_comparison_with_its_message(bench):
    done = bench("step_ratio.py", "--compare", "scaling", BREAKS="switchyard: no memory")
    assert done.returncode == 1
    assert "ended with status 1: switchyard: no memory" in done.stderr


def test_the_comparisons_on_a_gpu_are_of_equal_steps(bench):
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        import step_ratio
        import transformers_step
    finally:
        sys.path.pop(0)
    found = step_ratio.cuda_commands("switchyard", 3)
    assert sorted(found) == ["1b-32k", "1b-4k", "1b-mixed", "7b-32k", "7b-4k", "7b-mixed"]
    for _, sides in found.values():
        ours, theirs = (sides[name] for name in ("switchyard", "transformers"))
        assert "--compile" in theirs
        same = ours[ours.index("--cuda"):-1]
        assert theirs[theirs.index("--cuda"):-1] == same
        assert (ours[-1], theirs[-1]) == ("4", "3")  # the first one of `bench step` is its warm-up
    assert transformers_step.rows_of([5, 1, 3, 2, 4], 6) == [[5, 1], [4, 2], [3]]
    wrong = bench("step_ratio.py", "--compare", "1b-4k")
    assert wrong.returncode == 2
    assert "--compare 1b-4k: choose from transformers, scaling" in wrong.stderr


def test_the_peer_packs_documents_that_see_themselves_alone():
    import torch
    import transformers
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        import transformers_step
    finally:
        sys.path.pop(0)
    transformers_step.register_packed_attention(transformers, torch)
    torch.manual_seed(1)
    config = transformers.LlamaConfig(vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, attn_implementation="packed")
    model = transformers.LlamaForCausalLM(config).double()
    documents = [torch.randint(50, (1, length)) for length in (7, 12, 1)]
    alone = []
    for tokens in documents:
        model.config.ends = [0, tokens.shape[1]]
        alone.append(model(input_ids=tokens).logits)
    model.config.ends = [0, 7, 19, 20]
    positions = torch.cat([torch.arange(tokens.shape[1]) for tokens in documents])[None]
    together = model(input_ids=torch.cat(documents, dim=1), position_ids=positions).logits
    torch.testing.assert_close(together, torch.cat(alone, dim=1), rtol=1e-9, atol=1e-12)


def test_two_builds_take_turns_and_only_the_second_has_its_own_words(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    import two_builds
    ran, seconds = [], iter([1.0, 2.0, 4.0, 3.0])

    def timed(words):
        ran.append(words)
        return next(seconds)

    assert two_builds.measure(timed, ["plan"], ("a", "b"), ["--more"], 2) == [[1.0, 2.0], [3.0, 4.0]]
    assert ran == [["a", "plan"], ["b", "plan", "--more"], ["b", "plan", "--more"], ["a", "plan"]]
