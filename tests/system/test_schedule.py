"""`switchyard schedule`: orders, their idle time, and files."""

import json

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


def test_a_printed_schedule_is_a_file_with_the_same_replay(tmp_path):
    made = schedule("--kind", "zb-v", "--stages", 3, "--micro-batches", 7).stdout.splitlines()
    (tmp_path / "v.json").write_text("\n".join(made[:-1]))
    assert schedule("--file", tmp_path / "v.json").stdout.splitlines() == made


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
