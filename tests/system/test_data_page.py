"""The commands and the job of docs/data.md work as they stand there."""

import json
import re
import shlex

import tiny_runs as tiny

PAGE = (tiny.ROOT / "docs" / "data.md").read_text()


def block(language):
    return re.search(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]


def test_the_page_on_data_works_as_written(tmp_path):
    (tmp_path / "texts").mkdir()
    for i in range(30):
        (tmp_path / "texts" / f"{i}.txt").write_text(
            f"Text {i} has some words and numbers, {i * i} among them.\n" * (1 + i % 7))
    rows = [{"messages": [{"role": "user", "content": f"What is {i}?"},
                          {"role": "assistant", "content": f"A number, {i}."}]}
            for i in range(20)]
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "chat.jinja").write_text(block("jinja"))
    commands = re.findall(r"^build/switchyard (.*)$", PAGE, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        done = tiny.run([tiny.PROGRAM, *shlex.split(command)], cwd=tmp_path,
                        environment=tiny.ENVIRONMENT | {"SWITCHYARD_PYTHON": tiny.PYTHON})
        assert done.returncode == 0, done.stderr
    meta = json.loads((tmp_path / "data" / "chats" / "meta.json").read_text())
    assert 0 < meta["labels"] < meta["tokens"] / 2, "answers are the shorter half"
    job = "\n".join([block("toml"), "[batch]", "sequences = 8", "context = 64", "[run]", "steps = 2", "threads = 1",
                     "[[bucket]]", "max_length = 64", 'strategy = "2,1,1"', "[model]", "hidden_size = 32", "layers = 2",
                     "heads = 2", "ffn_size = 48"])
    (tmp_path / "job.toml").write_text(job)
    log = tiny.train(tmp_path / "job.toml", "--out", tmp_path / "run", cwd=tmp_path)
    assert {"loss/texts", "loss/chats"} <= log[0].keys() | log[1].keys()
    assert (tmp_path / "run" / "validation.jsonl").read_text().count("\n") == 1
