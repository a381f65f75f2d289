"""What a run shows on a terminal: lines that stay, a line that is rewritten, and none that is wider than it."""

import re
import signal

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


def widths(said):
    """Widths of all lines, also of those that were rewritten."""
    return [len(line.replace("\x1b[K", "")) for line in re.split("[\r\n]+", plain(said))]


@pytest.mark.parametrize("every, kept", [(1, [1, 2, 3, 4, 5]), (2, [1, 3, 5]), (3, [1, 4, 5])])
def test_a_terminal_keeps_a_line_every_log_every_steps_and_shows_the_others(train, tmp_path, every, kept):
    status, said = tiny.on_terminal(train(log_every=every), cwd=tmp_path)
    assert status == 0, said
    steps = [re.match(r"step (\d)/5  loss \d", line) for line in lines_that_stay(said)]
    assert [int(step[1]) for step in steps if step] == kept
    shown = {int(step) for step in re.findall(r"step (\d)/5  loss ", plain(said))}
    assert shown == {1, 2, 3, 4, 5}


def test_no_line_is_wider_than_the_terminal(train, tmp_path):
    for arguments, first in (([], "nothing of this run will be kept, as it"), (["--out", "run"], None),
                             (["--out", "run", "--resume", "run"], "run has all 2 steps already; raise")):
        status, said = tiny.on_terminal(train(*arguments, steps=2), columns=40, cwd=tmp_path)
        lines = lines_that_stay(said)
        assert status == 0 and max(widths(said)) < 40, said
        assert lines[0] == (first or lines[0])
        if "--resume" not in arguments:
            model = lines.index("model     llama, 4 layers of 32")
            assert re.match(" {10}[^ ]", lines[model + 1])


def test_lines_follow_the_width_of_a_terminal_that_is_resized(train, tmp_path):
    endless = train("--out", "run", steps=100000, checkpoint_every=0)
    with tiny.OnTerminal(endless, columns=120, cwd=tmp_path) as terminal:
        said = ""

        def until(there):
            """All that is said before, and the first complete lines for which it is true."""
            nonlocal said
            while True:
                part = terminal.read()
                assert part, said
                said += part
                *lines, said = said.split("\r\n")
                lines = [len(plain(line)) for line in lines if " loss " in line]
                if any(there(length) for length in lines):
                    return

        until(lambda length: length >= 40)
        for columns, there in ((40, lambda length: length < 40), (120, lambda length: length >= 40),
                               (40, lambda length: length < 40)):
            terminal.resize(columns)
            until(there)
        said = ""
        terminal.process.send_signal(signal.SIGTERM)
        rest = said + "".join(iter(terminal.read, ""))
        assert terminal.process.wait(timeout=tiny.HANG) == 128 + signal.SIGTERM
        assert max(widths(rest)) < 40 and "stopped after step" in rest, rest


def test_what_data_preparation_shows_fits_the_terminal(tmp_path):
    (tmp_path / "text.txt").write_text("Some text.\n" * 20000)
    words = [tiny.PROGRAM, "data", "prepare", "--input", "text.txt", "--tokenizer", "train:300", "--out", "data"]
    status, said = tiny.on_terminal(words, columns=40, cwd=tmp_path)
    assert status == 0 and max(widths(said)) < 40, said
    assert re.search("^tokenizing: 1 documents", "\n".join(lines_that_stay(said)), re.MULTILINE)
