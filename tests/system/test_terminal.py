"""What a run shows on a terminal: lines that stay, a line that is rewritten, and none that is wider than it."""

import re

import pytest
import tiny_runs as tiny

BUCKETS = [(48, "1,2,1"), (20, "2,1,1")]


@pytest.fixture
def train(tmp_path):
    """The words of a run in tmp_path, whose paths are short."""
    tiny.write_corpus(tmp_path / "data", tiny.random_documents(1, 40))

    def words(*arguments, **run):
        tiny.write_job(tmp_path / "job.toml", "data", BUCKETS, run={"memory_budget": "64 MiB"} | run)
        return tiny.command("job.toml", *arguments)

    return words


def plain(said):
    return re.sub("\x1b\\[[0-9]*m", "", said)


def lines_that_stay(said):
    """Each as it was when it ended."""
    return [re.split("\r(?:\x1b\\[K)?", line)[-1].removesuffix("\x1b[K") for line in plain(said).split("\r\n")][:-1]


@pytest.mark.parametrize("every, kept", [(1, [1, 2, 3, 4, 5]), (2, [1, 3, 5]), (3, [1, 4, 5])])
def test_a_terminal_keeps_a_line_every_log_every_steps_and_shows_the_others(train, tmp_path, every, kept):
    status, said = tiny.on_terminal(train(log_every=every), cwd=tmp_path)
    assert status == 0, said
    steps = [re.match(r"step (\d)/5  loss \d", line) for line in lines_that_stay(said)]
    assert [int(step[1]) for step in steps if step] == kept
    shown = {int(step) for step in re.findall(r"step (\d)/5  loss ", plain(said))}
    assert shown == {1, 2, 3, 4, 5}
