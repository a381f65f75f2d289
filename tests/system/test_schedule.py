"""`switchyard schedule`: orders, their idle time, and files."""

import json
import re

import pytest
import tiny_runs as tiny


def schedule(*arguments):
    return tiny.run([tiny.PROGRAM, "schedule", *arguments])


def figures(*arguments):
    result = schedule("--json", *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize("arguments, idle, held", [
    (["--kind", "1f1b"], 21, 8), (["--kind", "gpipe"], 21, 32), (["--kind", "interleaved", "--chunks", 2], 10.5, 23),
    (["--kind", "zero-bubble"], 7, 8), (["--kind", "zero-bubble", "--cap", 12], 3, 12),
    (["--kind", "zero-bubble", "--cap", 16], 0, 16),
    (["--kind", "1f1b", "--times", "1000,1050,900"], 20650, 8),
    (["--kind", "zero-bubble", "--times", "1000,1050,900"], 8050, 8),
], ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else None)
def test_the_idle_time_of_eight_stages_and_32_micro_batches(arguments, idle, held):
    found = figures("--stages", 8, "--micro-batches", 32, *arguments)
    assert found["worst_idle"] == pytest.approx(idle) and max(found["activations_held"]) <= held


@pytest.mark.parametrize("kind", ["1f1b", "zb-v"])
def test_a_printed_schedule_can_be_piped_to_a_replay(kind):
    made = schedule("--kind", kind, "--stages", 3, "--micro-batches", 7)
    json.loads(made.stdout)
    read = tiny.run([tiny.PROGRAM, "schedule", "--file", "/dev/stdin"], input=made.stdout)
    assert read.returncode == 0 and (read.stdout, read.stderr) == (made.stdout, made.stderr), read.stderr
    assert re.fullmatch(r"step \d+, idle \d+ on the worst stage; .*\n", made.stderr)


def test_a_file_whose_stages_wait_for_each_other_prints_the_cycle(tmp_path):
    file = tmp_path / "stuck.json"
    file.write_text(json.dumps({"micro_batches": 2, "stages": ["F0 BW0 F1 BW1", "F1 F0 BW0 BW1"]}))
    result = schedule("--file", file)
    assert (result.returncode == 2 and "stage 0 at BW0 waits for BW0 of stage 1" in result.stderr
            and "waits for F1 of stage 0" in result.stderr)


@pytest.mark.parametrize("arguments, told", [(["--file", "nowhere.json"], "cannot read nowhere.json"),
                                             (["--times", "1,2"], "--times needs three"),
                                             (["--kind", "zb-v", "--cap", 1], "--cap 1")], ids=["file", "times", "cap"])
def test_impossible_arguments_are_reported(arguments, told):
    result = schedule(*arguments)
    assert result.returncode == 2 and told in result.stderr and result.stdout == ""


@pytest.mark.parametrize("arguments, told", [
    (["gpipe", "--cap", 3], "--cap has no effect: --kind gpipe doesn't use it. Choose zero-bubble or zb-v, or leave it "
                            "out."),
    (["1f1b", "--chunks", 2], "--chunks has no effect: --kind 1f1b doesn't use it. Choose interleaved or zeropp, or "
                              "leave it out."),
    (["interleaved", "--every", 2], "--every has no effect: --kind interleaved doesn't use it. Choose zeropp, or "
                                    "leave it out."),
    (["gpipe", "--file", "x.json"], "--kind has no effect: --file has the whole schedule. Leave out --file, or leave "
                                    "it out."),
], ids=lambda value: value[0] if isinstance(value, list) else None)
def test_an_option_that_does_nothing_is_refused(arguments, told):
    result = schedule("--kind", *arguments)
    assert result.returncode == 2 and result.stderr == f"switchyard: {told}\n" and result.stdout == ""


@pytest.mark.parametrize("kind, stages, micro_batches, chunks, most", [
    ("zb-v", 256, 4096, 2, 131072), ("zero-bubble", 4096, 1024, 1, 8192), ("zeropp", 256, 1024, 2, 131072),
    ("1f1b", 4096, 65536, 1, 4194304)], ids=lambda value: value if isinstance(value, str) else None)
def test_a_schedule_that_would_take_minutes_is_refused(kind, stages, micro_batches, chunks, most):
    result = schedule("--kind", kind, "--stages", stages, "--micro-batches", micro_batches)
    assert result.returncode == 2 and result.stdout == "" and (
        f"have {stages * micro_batches * chunks} forward passes, above {most}, the limit of --kind {kind}"
        in result.stderr)
