"""bench/hosts/run.py and bench/step_ratio.py with fake programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Makes no hosts; `run` executes the words after `--`.
TOOL = '''
import os, sys
words = sys.argv[1:]
with open(os.environ["CALLS"], "a") as calls:
    print(" ".join(words), file=calls)
if words[0] == "up" and os.environ.get("NO_HOSTS"):
    sys.exit("cluster: needs root")
if words[0] == "run":
    words = words[words.index("--") + 1:]
    os.execv(words[0], words)
'''

PROGRAM = '''
import json, os, sys
from pathlib import Path
words = sys.argv[1:]
if words[0] == "bench":
    with open(os.environ["CALLS"], "a+") as calls:
        print("bench", file=calls, flush=True)
        calls.seek(0)
        number = len(calls.readlines())
    print(json.dumps({"tok_s": 100.0 if number % 2 == 0 else [190.0, 150.0, 200.0][number // 2]}))
    sys.exit(os.environ.get("BREAKS"))
strategy = next((word.split('strategy="')[1].split('"')[0] for word in words if "strategy=" in word), "hot")
if strategy in os.environ.get("TOO_LARGE", "").split(";"):
    sys.exit("switchyard: step 1: rank 0 needs 9 GiB, 1 GiB more than the memory budget.")
if strategy == os.environ.get("BREAKS"):
    sys.exit("switchyard: data.path is missing.")
out = Path(words[words.index("--out") + 1])
out.mkdir(parents=True, exist_ok=True)
loss = 9.1 if strategy == os.environ.get("DIFFERS") else 9.0
line = dict(step=1, loss=loss, tokens=1000, seconds=0.5, peak_bytes_per_rank=[1 << 20], intra_bytes=2000000,
            inter_bytes=7000000, switch_seconds=0.05, padding_share=0.01, bubble_share=0.2)
(out / "log.jsonl").write_text(json.dumps(line) + "\\n")
'''


@pytest.fixture
def bench(tmp_path):
    """Runs a script of bench/ with both fake programs; environment variables control what they do."""
    for name, text in ("tool", TOOL), ("program", PROGRAM):
        (tmp_path / name).write_text(f"#!{sys.executable}\n{text}")
        (tmp_path / name).chmod(0o755)

    def run(script, *arguments, **environment):
        command = [sys.executable, ROOT / "bench" / script, "--program", tmp_path / "program", *arguments]
        environment |= {"CALLS": str(tmp_path / "calls"), "PATH": os.environ["PATH"]}
        return subprocess.run(command, env=environment, text=True, capture_output=True, check=False)

    return run


@pytest.fixture
def hosts(bench, tmp_path):
    def run(*arguments, **environment):
        fixed = ["--cluster", tmp_path / "tool", "--results", tmp_path, "--setting", "100/800"]
        return bench("hosts/run.py", *fixed, *arguments, **environment)

    return run


def calls(tmp_path):
    return (tmp_path / "calls").read_text().splitlines()


def test_hosts_are_made_used_and_taken_down_and_every_step_is_kept(hosts, tmp_path):
    done = hosts("--setting", "400/2000", "--steps", "1", TOO_LARGE="4,1,1")
    assert done.returncode == 0, done.stderr
    verbs = [call.split()[0] for call in calls(tmp_path)]
    assert verbs == (["up"] + ["run"] * 7 + ["down"]) * 2
    assert "--inter 100mbit --intra 800mbit" in calls(tmp_path)[0]
    text = (tmp_path / "hosts.md").read_text()
    rows = [line.split() for line in text.splitlines()]
    assert rows.count(["hot", "2000", "1", "MiB", "2", "MB", "7", "MB", "50", "ms", "10.00%", "1.0%", "20%"]) == 2
    assert text.count("4,1,1     does not fit the memory budget") == 2
    assert "Command: `" in text and "--cluster TOOL" in text and str(tmp_path / "tool") not in text
    logged = [json.loads(line) for line in (tmp_path / "hosts-400-2000.jsonl").read_text().splitlines()]
    assert [line["strategy"] for line in logged] == ["hot", "2,2,1", "2,1,2", "1,4,1", "1,2,2", "1,1,4"]
    assert {line["inter_mbit"] for line in logged} == {400.0}


def test_hosts_that_cannot_be_made_and_runs_that_fail_are_reported_and_hosts_taken_down(hosts, tmp_path):
    assert "hosts: up of the hosts failed: cluster: needs root" in hosts(NO_HOSTS="1").stderr
    failed = hosts(BREAKS="2,2,1")
    assert failed.returncode == 1
    assert "hosts: 100/800 2,2,1 ended with status 1: switchyard: data.path is missing." in failed.stderr
    assert calls(tmp_path)[-1].startswith("down")
    assert "hosts: 100/800: the losses differ by 1.1e-02 relative, more than 1e-04." in hosts(DIFFERS="1,1,4").stderr
    assert "hosts: 100/800: no strategy fits the memory budget." in hosts("--strategy", "hot", TOO_LARGE="hot").stderr
    assert not (tmp_path / "hosts.md").exists()


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
