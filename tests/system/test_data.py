"""From texts and conversations to a run that draws from both."""

import json
import re

import pytest
import tiny_runs as tiny

TEMPLATE = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}" \
           "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
MODEL = {key: value for key, value in tiny.MODEL.items() if key != "vocab_size"}  # the data has it


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory):
    """data/texts and data/chats of one tokenizer, data/other of another one."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "texts.jsonl").write_text("".join(
        json.dumps({"text": f"line {i} of a text. " * (i % 5 + 1)}) + "\n" for i in range(30)))
    (folder / "chats.jsonl").write_text("".join(
        json.dumps({"messages": [{"role": "user", "content": f"what is {i}?"},
                                 {"role": "assistant", "content": f"a number, {i}" * (i % 3 + 1)}]}) + "\n"
        for i in range(20)))
    (folder / "template.jinja").write_text(TEMPLATE)
    prepare(folder, "texts.jsonl", "train:300", "texts")
    prepare(folder, "chats.jsonl", "data/texts", "chats", "--messages", "--chat-template", "template.jinja")
    prepare(folder, "texts.jsonl", "train:290", "other")
    return folder


def prepare(folder, source, tokenizer, out, *more):
    result = tiny.run([tiny.PROGRAM, "data", "prepare", "--input", source, "--tokenizer", tokenizer, "--out",
                       f"data/{out}", *more], cwd=folder)
    assert result.returncode == 0, result.stderr


def write_job(folder, name, sources, strategy="2,1,1", **run):
    """sources: (path, weight)."""
    path = tiny.write_job(folder / name, "unused", [(256, strategy)], model=MODEL,
                          batch={"sequences": 24, "context": 256}, run={"steps": 4, "checkpoint_every": 2} | run)
    text = re.sub(r'\[data\]\npath = "unused"\n', "", path.read_text())
    path.write_text(text + "".join(f'[[data.source]]\npath = "{source}"\nweight = {weight}\n'
                                   for source, weight in sources))
    return path


def test_scripts_in_the_working_folder_are_not_taken_for_modules(tmp_path):
    for name in ("tokenize", "numpy", "runpy", "tokenizers"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a script of the user')\n")
    (tmp_path / "texts.jsonl").write_text('{"text": "some text"}\n')
    prepare(tmp_path, "texts.jsonl", "train:300", "texts")


BOTH = [("data/texts", 3), ("data/chats", 1)]


def test_a_run_draws_from_texts_and_conversations(folder):
    logs = [tiny.train(write_job(folder, f"{i}.toml", BOTH, strategy), "--out", folder / f"run{i}", cwd=folder)
            for i, strategy in enumerate(("2,1,1", "1,2,2"))]
    tokens = {name: sum(line[f"tokens/{name}"] for line in logs[0]) for name in ("texts", "chats")}
    assert abs(tokens["texts"] - 3 * tokens["chats"]) < 1000
    for a, b in zip(*logs):
        for key in ("loss", "loss/texts", "loss/chats", "grad_norm"):
            assert abs(a[key] - b[key]) < 1e-9
        assert a["tokens"] == a["tokens/texts"] + a["tokens/chats"]
    job = (folder / "run0" / "job.toml").read_text()
    assert '[[data.source]]\npath = "data/texts"\nweight = 3.0\nname = "texts"\n' in job
    events = b"".join(path.read_bytes() for path in (folder / "run0").glob("events.*"))
    assert b"train/loss/chats" in events
    report = tiny.run([tiny.PROGRAM, "report", "run0", "--out", "page.html"], cwd=folder)
    assert report.returncode == 0, report.stderr
    assert "loss/chats" in (folder / "page.html").read_text()
    shown = tiny.run([tiny.PROGRAM, "show", "plan", "0.toml"], cwd=folder)
    assert shown.returncode == 0 and "synthetic" not in shown.stdout, shown.stderr


def test_it_goes_on_in_every_source_where_it_was(folder):
    whole = tiny.train(write_job(folder, "whole.toml", BOTH, steps=6), "--out", folder / "whole", cwd=folder)
    again = tiny.train(folder / "whole.toml", "--out", folder / "again", "--resume",
                       folder / "whole" / "checkpoints" / "step-00000002", cwd=folder)
    keys = ("step", "loss", "loss/texts", "loss/chats", "tokens/texts", "tokens/chats", "grad_norm")
    assert [[line[key] for key in keys] for line in again] == [[line[key] for key in keys] for line in whole[2:]]


def test_the_model_of_several_sources_has_their_tokenizer_and_chat_template(folder, tmp_path):
    job = write_job(folder, "kept.toml", BOTH)
    words = [folder / path if path in ("data/texts", "data/chats") else path for path in ("data/texts", "data/chats")]
    for path in words:
        job.write_text(job.read_text().replace(f'"{path.relative_to(folder)}"', f'"{path}"'))
    (tmp_path / "tokenizer.json").write_bytes((folder / "data/other/tokenizer.json").read_bytes())  # nobody's file
    tiny.train(job, "--out", tmp_path / "run", cwd=tmp_path)
    exported = tiny.run([tiny.PROGRAM, "export", "run", "--out", "model"], cwd=tmp_path)
    assert exported.returncode == 0 and "tokenizer" not in exported.stderr, exported.stderr
    for name in ("tokenizer.json", "chat_template.jinja"):
        source = "chats" if name.startswith("chat") else "texts"
        assert (tmp_path / "model" / name).read_bytes() == (folder / "data" / source / name).read_bytes()
    end = json.loads((tmp_path / "model/config.json").read_text())["eos_token_id"]
    assert end == json.loads((tmp_path / "model/generation_config.json").read_text())["eos_token_id"] is not None


def test_data_of_another_tokenizer_than_the_model_s_is_refused(folder):
    tiny.train(write_job(folder, "first.toml", [("data/texts", 1)]), "--out", folder / "first", cwd=folder)
    model = folder / "first/checkpoints/step-00000004/model"
    (folder / "foreign.jsonl").write_text("".join(json.dumps({"text": f"{i} autres mots"}) + "\n" for i in range(30)))
    prepare(folder, "foreign.jsonl", "train:290", "foreign")
    job = write_job(folder, "second.toml", [("data/foreign", 1)])
    job.write_text(re.sub(r"\[model\]\n(?:\w+ = .*\n)+", f'[model]\npath = "{model}"\n', job.read_text()))
    for words in (tiny.command(job), [tiny.PROGRAM, "evaluate", model, "--data", "data/foreign"]):
        result = tiny.run(words, cwd=folder)
        assert result.returncode == 2 and result.stderr.splitlines()[-1].startswith(
            f"switchyard: data/foreign was prepared with another tokenizer than that of the model in {model}: id "
        ), result.stderr


def test_sources_of_other_tokenizers_are_refused(folder):
    job = write_job(folder, "bad.toml", [*BOTH, ("data/other", 1)])
    result = tiny.run(tiny.command(job), cwd=folder)
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert ('data.source: "texts" and "other" were prepared with different tokenizers. Prepare the second one again '
            "with --tokenizer data/texts.") in result.stderr


def resident(process, file):
    """KiB of a file's pages that a process has touched."""
    with open(f"/proc/{process.pid}/smaps", encoding="utf-8") as lines:
        maps = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", lines.read(), flags=re.MULTILINE)
    return sum(int(re.search(r"^Rss: +(\d+) kB", text, re.MULTILINE)[1]) for text in maps
               if text.partition("\n")[0].endswith(file))


def test_show_batch_lists_the_documents_that_training_takes(folder):
    job = write_job(folder, "batches.toml", BOTH)
    for logged in tiny.train(job, "--out", folder / "batches", cwd=folder):
        shown = tiny.run([tiny.PROGRAM, "show", "batch", job, "--step", logged["step"]], cwd=folder)
        assert shown.returncode == 0, shown.stderr
        head = re.match(r"Step (\d+): (\d+) documents, (\d+) tokens", shown.stdout)
        assert int(head[1]) == logged["step"] and int(head[3]) == logged["tokens"]
        listed = dict(re.findall(r"(?<=[ ,])(\d+) \((\d+)\)", shown.stdout))
        assert sorted(map(int, listed)) == list(range(int(head[2])))
        assert sum(map(int, listed.values())) == logged["tokens"]


def test_ranks_read_only_what_their_tokens_need(folder):
    """Only the first and the last of four stages of a pipeline read."""
    job = write_job(folder, "pipeline.toml", [("data/texts", 1)], "1,1,4", steps=1000000, checkpoint_every=0)
    processes = tiny.start_ranks([tiny.command(job)] * 4, cwd=folder)
    try:
        tiny.wait_for_steps(processes[0], 2)
        touched = [resident(process, "corpus.bin") for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert touched[0] > 0 and touched[3] > 0 and touched[1:3] == [0, 0]
