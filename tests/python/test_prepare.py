import gzip
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from corpus_reader import CorpusReader
from switchyard_data.__main__ import main
from switchyard_data.progress import Progress
from tokenizers import Tokenizer, models, pre_tokenizers, decoders, processors

TEXTS = ["def f(x):\n    return x\n", "\ufeffgrüße \U0001f600\r\n\ttab\n", "x", "  leading and trailing  \n\n",
         "word " * 300]


def prepare(*arguments):
    return main(["prepare", *map(str, arguments)])


def fails(capsys, *arguments, status=2):
    """The one line that a failing call leaves on standard error."""
    speaker = "switchyard: "
    capsys.readouterr()
    assert prepare(*arguments) == status
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith(speaker)]
    assert len(lines) == 1
    return lines[0].removeprefix(speaker)


def rows(texts, key="content"):
    return "".join(json.dumps({"id": i, key: text}) + "\n" for i, text in enumerate(texts)).encode()


def write_folder(folder):
    (folder / "b").mkdir(parents=True)
    for i, text in enumerate(TEXTS):
        (folder / ("b" if i % 2 else ".") / f"{i}.py").write_bytes(text.encode())
    return [TEXTS[0], TEXTS[2], TEXTS[4], TEXTS[1], TEXTS[3]]  # in the order of sorted paths


def write_jsonl(folder):
    (folder / "rows.jsonl").write_bytes(rows(TEXTS[:2]) + b"\n" + rows(TEXTS[2:]))
    return TEXTS


def write_gz(folder):
    with open(folder / "rows.jsonl.gz", "wb") as file:  # two members in one file
        file.write(gzip.compress(rows(TEXTS[:3])) + gzip.compress(rows(TEXTS[3:])))
    return TEXTS


def write_json_gz(folder):
    (folder / "rows.json.gz").write_bytes(gzip.compress(rows(TEXTS)))
    return TEXTS


def write_zst(folder):
    compressor = zstandard.ZstdCompressor()
    (folder / "rows.jsonl.zst").write_bytes(compressor.compress(rows(TEXTS[:3])) + compressor.compress(rows(TEXTS[3:])))
    return TEXTS


def write_parquet(folder):
    table = pyarrow.table({"content": TEXTS, "id": list(range(len(TEXTS)))})
    pyarrow.parquet.write_table(table, folder / "rows.parquet", row_group_size=2)
    return TEXTS


PREPARED = ["corpus.bin", "corpus.idx", "meta.json", "tokenizer.json", "tokenizer_config.json"]
KINDS = [write_folder, write_jsonl, write_gz, write_json_gz, write_zst, write_parquet]


@pytest.mark.parametrize("write", KINDS)
@pytest.mark.parametrize("named", [False, True], ids=["in a folder", "by name"])
def test_every_kind_of_input_decodes_to_the_same_bytes(tmp_path, write, named):
    source = tmp_path / "in"
    source.mkdir()
    texts = write(source)
    inputs = sorted(source.iterdir()) if named else [source]
    assert prepare("--input", *inputs, "--tokenizer", "train:300", "--out", tmp_path / "out") == 0
    corpus = CorpusReader(tmp_path / "out")
    assert sorted(corpus.texts()) == sorted(texts) if write is write_folder and named else corpus.texts() == texts
    assert corpus.meta["documents"] == len(texts)
    assert corpus.meta["tokens"] == sum(corpus.sizes)
    assert corpus.meta["longest"] == max(corpus.sizes)
    assert corpus.meta["largest_id"] == max(max(corpus.ids(document)) for document in range(len(texts)))
    assert corpus.meta["dtype"] == "uint16" and corpus.code == 8
    assert corpus.meta["vocab_size"] == corpus.tokenizer.get_vocab_size()
    assert corpus.meta["text_bytes"] == sum(len(text.encode()) for text in texts)
    assert len(corpus.data) == 2 * sum(corpus.sizes)
    assert sorted(os.listdir(tmp_path / "out")) == PREPARED


def test_several_inputs_follow_one_another(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.txt").write_text("one")
    (tmp_path / "2.txt").write_text("two")
    (tmp_path / "3.jsonl").write_bytes(rows(["three"], key="text"))
    out = tmp_path / "out"
    assert prepare("--input", tmp_path / "3.jsonl", tmp_path / "a", "--input", tmp_path / "2.txt",
                   "--tokenizer", "train:257", "--out", out) == 0
    assert CorpusReader(out).texts() == ["three", "one", "two"]


def test_a_suffix_chooses_files_of_folders(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.py", "b.txt", "c.md", "d.py.orig"):
        (tmp_path / "in" / name).write_text(name)
    prepare("--input", tmp_path / "in", "--suffix", ".py", "--suffix", ".md", "--tokenizer", "train:257",
            "--out", tmp_path / "out")
    assert CorpusReader(tmp_path / "out").texts() == ["a.py", "c.md"]


def test_what_is_not_a_document_is_skipped_and_counted(tmp_path, capsys):
    source = tmp_path / "in"
    for folder in ("__pycache__", "site-packages", "dist-packages", ".git"):
        (source / folder).mkdir(parents=True)
        (source / folder / "a.py").write_text("hidden")
    (source / "a.py").write_text("kept")
    (source / ".hidden").write_text("hidden")
    (source / "empty.py").write_text("")
    (source / "latin1.py").write_bytes("grüße".encode("latin-1"))
    (source / "binary").write_bytes(b"a\0b")
    (source / "gone").symlink_to(source / "nowhere")
    out = source / "out"  # what is written is never read
    for _ in range(2):
        assert prepare("--input", source, "--tokenizer", "train:257", "--out", out) == 0
    corpus = CorpusReader(out)
    assert corpus.texts() == ["kept"]
    assert corpus.meta["empty_documents"] == 1
    assert corpus.meta["skipped_files"] == 2
    printed = capsys.readouterr().out
    assert "skipped: 1 empty documents, 2 files that are not UTF-8 text" in printed
    assert "up to date" in printed


def test_a_null_text_is_an_empty_document(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"content": null}\n{"content": "x"}\n{"content": ""}\n')
    assert prepare("--input", tmp_path / "a.jsonl", "--tokenizer", "train:257", "--out", tmp_path / "out") == 0
    assert CorpusReader(tmp_path / "out").meta["empty_documents"] == 2


def word_tokenizer(path, size):
    vocabulary = {chr(0x4e00 + i) if i < 20000 else f"w{i}": i for i in range(size)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=chr(0x4e00)))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(single="w65000 $A", special_tokens=[("w65000", 65000)])
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=64)
    tokenizer.save(str(path))


@pytest.mark.parametrize("size, dtype", [(65499, "uint16"), (65500, "int32")])
def test_large_vocabularies_take_four_bytes(tmp_path, size, dtype):
    word_tokenizer(tmp_path / "t.json", size)
    (tmp_path / "a.txt").write_text(f"w30000 w65000 w{size - 1}")
    assert prepare("--input", tmp_path / "a.txt", "--tokenizer", tmp_path / "t.json", "--out", tmp_path / "out") == 0
    corpus = CorpusReader(tmp_path / "out")
    assert corpus.meta["dtype"] == dtype and corpus.meta["vocab_size"] == size
    # Documents stay complete: truncation, padding and special tokens of the file are not applied.
    assert corpus.ids(0) == [30000, 65000, size - 1]


def test_a_tokenizer_trained_before_can_be_used_again(tmp_path):
    (tmp_path / "a.txt").write_text("hello hello hello")
    prepare("--input", tmp_path / "a.txt", "--tokenizer", "train:260", "--out", tmp_path / "one")
    for spec in (tmp_path / "one" / "tokenizer.json", tmp_path / "one"):
        assert prepare("--input", tmp_path / "a.txt", "--tokenizer", spec, "--out", tmp_path / "two", "--force") == 0
        assert (tmp_path / "one" / "corpus.bin").read_bytes() == (tmp_path / "two" / "corpus.bin").read_bytes()


def test_many_documents_keep_their_order_over_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("switchyard_data.prepare.BATCH_CHARACTERS", 100)
    texts = [f"document {i} " * (i % 7 + 1) for i in range(500)]
    (tmp_path / "a.jsonl").write_bytes(rows(texts))
    prepare("--input", tmp_path / "a.jsonl", "--tokenizer", "train:300", "--out", tmp_path / "out")
    assert CorpusReader(tmp_path / "out").texts() == texts


def test_a_second_run_does_nothing_until_something_changes(tmp_path, capsys):
    source, out = tmp_path / "a.jsonl", tmp_path / "out"
    source.write_bytes(rows(TEXTS))

    def done(*more):
        capsys.readouterr()
        assert prepare("--input", source, "--tokenizer", "train:300", "--out", out, *more) == 0
        return not capsys.readouterr().out.startswith("up to date: ")

    assert done()
    assert not done()
    assert done("--force")
    assert not done()
    source.write_bytes(rows(TEXTS[1:]))
    assert done()
    assert len(CorpusReader(out).texts()) == len(TEXTS) - 1
    (out / "corpus.bin").write_bytes(b"")
    assert done()
    (out / "meta.json").write_text("{")
    assert done()
    (out / "corpus.idx").unlink()
    assert done()
    assert done("--text-key", "content", "--tokenizer", "train:301")


LIKE_ROWS = {"lines": '{"text": "a"}\n\n{"text": "b"}\n', "one line": '{"text": "a"}', "list": '[\n {"text": "a"}\n]\n'}


@pytest.mark.parametrize("content", LIKE_ROWS.values(), ids=LIKE_ROWS)
@pytest.mark.parametrize("name", ["rows.json", "rows"])
def test_rows_in_a_file_of_another_name_are_no_text(tmp_path, capsys, name, content):
    (tmp_path / name).write_text(content)
    arguments = ("--tokenizer", "train:257", "--out", tmp_path / "out")
    assert fails(capsys, "--input", tmp_path / name, *arguments) == (
        f"{tmp_path}/{name}: it holds rows, but is not one of .jsonl, .jsonl.gz, .jsonl.zst, .json.gz, .json.zst, "
        ".parquet, from which they are read. Write one JSON object per line, and let the file's name end in .jsonl.")
    several = name == "rows.json" and content == LIKE_ROWS["lines"]
    assert prepare("--input", tmp_path / name, *arguments, "--text-key", "body") == (2 if several else 0)


def test_several_rows_in_a_json_file_that_is_named_are_no_text_whatever_their_keys(tmp_path, capsys):
    (tmp_path / "a.json").write_text(json.dumps([{"instruction": "a", "output": "b"}] * 2, indent=1))
    arguments = ("--input", tmp_path / "a.json", "--tokenizer", "train:257", "--out", tmp_path / "out")
    assert "a.json: it holds rows, but is not one of .jsonl," in fails(capsys, *arguments)
    (tmp_path / "a.json").write_text(json.dumps({"instruction": "a", "output": "b"}, indent=1))
    assert prepare(*arguments) == 0


def test_in_a_folder_only_several_rows_are_no_text(tmp_path, capsys):
    texts = {"one.json": LIKE_ROWS["one line"], "list.json": LIKE_ROWS["list"], "set.json": '{"text": "a"}\n{"x": 1}\n',
             "brace.txt": "{ text"}
    (tmp_path / "in").mkdir()
    for name, text in texts.items():
        (tmp_path / "in" / name).write_text(text)
    arguments = ("--input", tmp_path / "in", "--tokenizer", "train:257", "--out", tmp_path / "out")
    assert prepare(*arguments) == 0
    assert sorted(CorpusReader(tmp_path / "out").texts()) == sorted(texts.values())
    (tmp_path / "in" / "rows.json").write_text(LIKE_ROWS["lines"])
    assert "in/rows.json: it holds rows" in fails(capsys, *arguments)


def test_a_table_that_is_named_is_no_text(tmp_path, capsys):
    (tmp_path / "a.CSV").write_text("id,text\n1,one\n")
    arguments = ("--tokenizer", "train:257", "--out", tmp_path / "out")
    assert "a.CSV: it holds rows, but is not one of .jsonl," in fails(capsys, "--input", tmp_path / "a.CSV", *arguments)
    (tmp_path / "in").mkdir()
    (tmp_path / "a.CSV").rename(tmp_path / "in" / "a.csv")
    assert prepare("--input", tmp_path / "in", *arguments) == 0
    assert CorpusReader(tmp_path / "out").texts() == ["id,text\n1,one\n"]


def test_a_failed_run_leaves_the_earlier_files_as_they_were(tmp_path, capsys):
    out = tmp_path / "out"
    (tmp_path / "good.jsonl").write_bytes(rows(TEXTS))
    (tmp_path / "bad.jsonl").write_bytes(rows(TEXTS) + b"{")
    prepare("--input", tmp_path / "good.jsonl", "--tokenizer", "train:300", "--out", out)
    before = {name: (out / name).read_bytes() for name in os.listdir(out)}
    arguments = ("--input", tmp_path / "bad.jsonl", "--tokenizer", out, "--out", out)
    assert "bad.jsonl" in fails(capsys, *arguments, "--force")
    assert before == {name: (out / name).read_bytes() for name in os.listdir(out)}


def test_a_run_stopped_between_two_files_is_done_again(tmp_path, capsys, monkeypatch):
    source, out = tmp_path / "a.txt", tmp_path / "out"
    source.write_text("ab")
    arguments = ("--input", source, "--tokenizer", "train:257", "--out", out)
    prepare(*arguments)
    old = source.stat()
    source.write_text("cd")
    replace = os.replace

    def stop(old, new):
        if new.name == "corpus.idx":
            raise OSError(5, "Input/output error")
        replace(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop)
        assert "can't be written (Input/output error)" in fails(capsys, *arguments, status=3)
    # Back to the first text: the new tokens are now beside the old index and must not be taken for its files.
    source.write_text("ab")
    os.utime(source, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert prepare(*arguments) == 0
    assert "up to date" not in capsys.readouterr().out
    assert CorpusReader(out).texts() == ["ab"]


def test_a_corpus_of_other_inputs_is_replaced_only_by_force(tmp_path, capsys):
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "text").write_text(f"{name} " * 100)
    out = tmp_path / "out"

    def arguments(*inputs):
        return ("--input", *(tmp_path / name for name in inputs), "--tokenizer", "train:300", "--out", out)

    assert prepare(*arguments("a")) == 0
    before = (out / "corpus.bin").read_bytes()
    message = fails(capsys, *arguments("b"))
    assert message == (f"--out {out}: it holds a corpus of other inputs ({tmp_path}/a). Choose another folder, or "
                       "replace it with --force.")
    assert (out / "corpus.bin").read_bytes() == before
    assert prepare(*arguments("a", "b")) == 0, "its inputs and more"
    assert prepare(*arguments("c"), "--force") == 0
    assert CorpusReader(out).texts() == ["c " * 100]


def test_a_tokenizer_of_a_model_is_replaced_only_by_force(tmp_path, capsys):
    (tmp_path / "a").write_text("text")
    out = tmp_path / "model"
    out.mkdir()
    (out / "config.json").write_text("{}")
    (out / "tokenizer.json").write_text("its own")
    message = fails(capsys, "--input", tmp_path / "a", "--tokenizer", "train:300", "--out", out)
    assert "it holds a model (config.json)" in message
    assert (out / "tokenizer.json").read_text() == "its own"


# Errors: one line that says what, where and how to fix it; exit code 2.

@pytest.mark.parametrize("option", ["--input", "--out"])
def test_an_empty_name(tmp_path, capsys, option):
    (tmp_path / "a").write_text("text")
    names = {"--input": tmp_path / "a", "--out": tmp_path / "out"} | {option: ""}
    message = fails(capsys, *(word for pair in names.items() for word in pair), "--tokenizer", "train:300")
    assert message == f"{option} is empty. Name a folder."


def test_inputs_that_lie_in_the_output_or_are_given_twice(tmp_path, capsys, monkeypatch):
    (tmp_path / "a").write_text("text")
    tokenizer = ("--tokenizer", "train:300")
    message = fails(capsys, "--input", tmp_path / "a", *tokenizer, "--out", tmp_path)
    assert f"--input: all 1 files lie in --out {tmp_path}, where nothing is read" in message
    message = fails(capsys, "--input", tmp_path, tmp_path / ".", *tokenizer, "--out", tmp_path / "out")
    assert "is given twice" in message
    (tmp_path / "link").symlink_to("a")
    assert prepare("--input", tmp_path, *tokenizer, "--out", tmp_path / "out") == 0
    monkeypatch.chdir(tmp_path)
    assert "is given twice" in fails(capsys, "--input", "a", "a", *tokenizer, "--out", tmp_path / "other")
    for named in ("a", "link"):
        message = fails(capsys, "--input", tmp_path, tmp_path / named, *tokenizer, "--out", tmp_path / "out")
        assert "is given twice" in message and str(tmp_path / "a") in message


def test_a_missing_path(tmp_path, capsys):
    message = fails(capsys, "--input", tmp_path / "none", "--tokenizer", "train:300", "--out", tmp_path / "out")
    assert message == f"{tmp_path}/none: no such file or folder. Check --input."


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_no_input(tmp_path, capsys, device):
    message = fails(capsys, "--input", device, "--tokenizer", "train:300", "--out", tmp_path / "out")
    assert message == f"--input {device}: this is a device, which may never end. Name a file or folder."


def test_only_tokenizing_says_what_time_is_left(tmp_path, monkeypatch):
    """A tokenizer is trained after all texts have been read."""
    totals = {}

    class Recorded(Progress):
        def __init__(self, title, total_bytes=0):
            totals[title.split()[0]] = total_bytes
            super().__init__(title, total_bytes)

    monkeypatch.setattr("switchyard_data.prepare.Progress", Recorded)
    write_jsonl(tmp_path)
    assert prepare("--input", tmp_path, "--tokenizer", "train:300", "--out", tmp_path / "out") == 0
    assert totals == {"training": 0, "tokenizing": (tmp_path / "rows.jsonl").stat().st_size}


def test_no_documents(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    arguments = ("--input", tmp_path / "in", "--out", tmp_path / "out", "--tokenizer")
    word_tokenizer(tmp_path / "t.json", 65001)
    assert "no documents in 0 files (0 are not UTF-8 text). Check --input" in fails(capsys, *arguments, "train:300")
    (tmp_path / "in" / "a").write_bytes(b"\xff")
    (tmp_path / "in" / "b").write_bytes(b"")
    assert "no documents in 2 files (1 are not UTF-8 text)" in fails(capsys, *arguments, "train:300")
    assert "no documents in 2 files" in fails(capsys, *arguments, tmp_path / "t.json")


def test_an_unknown_or_broken_tokenizer(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("x")
    arguments = ("--input", tmp_path / "a.txt", "--out", tmp_path / "out", "--tokenizer")
    (tmp_path / "p.json").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9085657\n")
    assert fails(capsys, *arguments, tmp_path / "p.json") == (
        f"--tokenizer {tmp_path}/p.json: it is only a pointer to the file, by Git LFS. Fetch the file with git lfs "
        "pull.")
    message = fails(capsys, *arguments, "owner/model")
    assert message == ("--tokenizer owner/model: no such file. Give a Hugging Face tokenizer.json, or a folder with "
                       "one, as hf download NAME --local-dir FOLDER makes it of a model on the hub, or train:8192 to "
                       "train one on the inputs.")
    for content in ("{", "{}", '{"model": 3}'):
        (tmp_path / "t.json").write_text(content)
        assert "not a Hugging Face tokenizer.json (" in fails(capsys, *arguments, tmp_path / "t.json")
    for spec in ("train:", "train:x", "train:256", "train:-1"):
        assert f"--tokenizer {spec}: the vocabulary must be a number from 257 to 1048576" in fails(capsys,
                                                                                                   *arguments, spec)


def test_a_folder_with_a_slow_tokenizer_alone_is_told_the_line_that_adds_the_fast_one(tmp_path, capsys):
    pytest.importorskip("transformers")
    (tmp_path / "a.txt").write_text("lower")
    folder = tmp_path / "slow"
    folder.mkdir()
    arguments = ("--input", tmp_path / "a.txt", "--out", tmp_path / "out", "--tokenizer", folder)
    (folder / "tokenizer.model").write_text("")
    assert (f"--tokenizer {folder}: it has tokenizer.model, but no tokenizer.json. Write one in"
            in fails(capsys, *arguments))
    (folder / "tokenizer.model").unlink()
    words = [*"lower", "Ġ", "lo", "low", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\nl o\nlo w\n")
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    message = fails(capsys, *arguments)
    assert "it has vocab.json, but no tokenizer.json" in message
    exec(message.partition("the package transformers: ")[2], {})  # noqa: S102
    assert prepare(*arguments) == 0
    tokenizer = CorpusReader(tmp_path / "out").tokenizer
    assert [tokenizer.id_to_token(number) for number in CorpusReader(tmp_path / "out").ids(0)] == [
        "low", "e", "r", "<|endoftext|>"]


def test_the_text_is_found_under_its_usual_keys(tmp_path, capsys):
    """Row by row, or in the columns of a table: "text" before "content"."""
    out = tmp_path / "out"
    both = json.dumps({"content": "wrong", "text": "right"}).encode() + b"\n"
    (tmp_path / "a.jsonl").write_bytes(rows(["x"]) + rows(["y"], key="text") + both)
    assert prepare("--input", tmp_path / "a.jsonl", "--tokenizer", "train:257", "--out", out) == 0
    assert CorpusReader(out).texts() == ["x", "y", "right"]
    assert prepare("--input", tmp_path / "a.jsonl", "--tokenizer", out, "--out", tmp_path / "other",
                   "--text-key", "text") == 2
    assert 'a.jsonl:1: no key "text"; its keys are "id", "content"' in capsys.readouterr().err
    pyarrow.parquet.write_table(pyarrow.table({"content": ["wrong"], "text": ["right"]}), tmp_path / "a.parquet")
    assert prepare("--input", tmp_path / "a.parquet", "--tokenizer", out, "--out", tmp_path / "other") == 0
    assert CorpusReader(tmp_path / "other").texts() == ["right"]


def test_a_missing_text_key_names_the_keys(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_bytes(rows(["x"]) + rows(["y"], key="body"))
    arguments = ("--tokenizer", "train:300", "--out", tmp_path / "out")
    message = fails(capsys, "--input", tmp_path / "a.jsonl", *arguments)
    assert ('a.jsonl:2: no key "text" or "content"; its keys are "id", "body". Name the right one with '
            '--text-key.' in message)
    write_parquet(tmp_path)
    message = fails(capsys, "--input", tmp_path / "rows.parquet", *arguments, "--text-key", "body")
    assert 'rows.parquet: no key "body"; its keys are "content", "id".' in message
    message = fails(capsys, "--input", tmp_path / "rows.parquet", *arguments, "--text-key", "id")
    assert 'rows.parquet: row 1: "id" is not text but int.' in message
    (tmp_path / "b.jsonl").write_text('{"messages": [], "id": 1}\n')
    message = fails(capsys, "--input", tmp_path / "b.jsonl", *arguments)
    assert message.endswith('no key "text" or "content"; its keys are "messages", "id". Prepare conversations with '
                            '--messages.')


@pytest.mark.parametrize("line, message", [
    (b'{"content": "x"', "not valid JSON"),
    (b"\xff", "not valid JSON"),
    (b"[]", "not a JSON object"),
    (b'{"content": 3}', "is not text but int"),
    (b'{"content": "\\ud800"}', "is not valid Unicode"),
])
def test_a_broken_line_is_named(tmp_path, capsys, line, message):
    (tmp_path / "a.jsonl").write_bytes(rows(TEXTS) + line + b"\n")
    error = fails(capsys, "--input", tmp_path / "a.jsonl", "--tokenizer", "train:300", "--out", tmp_path / "out")
    assert f"a.jsonl:{len(TEXTS) + 1}: " in error and message in error


@pytest.mark.parametrize("write", [write_gz, write_zst, write_parquet])
def test_a_truncated_file_is_named(tmp_path, capsys, write):
    write(tmp_path)
    file = next(path for path in tmp_path.iterdir())
    whole = file.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 5, 0):
        file.write_bytes(whole[:size])
        error = fails(capsys, "--input", tmp_path, "--tokenizer", "train:300", "--out", tmp_path / "out")
        assert file.name in error and "truncated" in error and "Fetch it again." in error, size


def test_a_damaged_parquet_page_is_named(tmp_path, capsys):
    table = pyarrow.table({"content": ["abcdefgh" * 1000 + str(i) for i in range(100)]})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet", compression="snappy", use_dictionary=False)
    data = bytearray((tmp_path / "rows.parquet").read_bytes())
    data[4:200] = bytes(196)
    (tmp_path / "rows.parquet").write_bytes(data)
    error = fails(capsys, "--input", tmp_path, "--tokenizer", "train:300", "--out", tmp_path / "out")
    assert "rows.parquet: damaged after row 0 (" in error


def test_the_checksums_of_parquet_pages_are_verified(tmp_path, capsys):
    table = pyarrow.table({"content": [f"number {i}" for i in range(100)]})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet", compression="none", use_dictionary=False,
                                write_page_checksum=True)
    data = (tmp_path / "rows.parquet").read_bytes()
    (tmp_path / "rows.parquet").write_bytes(data.replace(b"number 50", b"numbed 50"))
    error = fails(capsys, "--input", tmp_path, "--tokenizer", "train:300", "--out", tmp_path / "out")
    assert "rows.parquet: damaged after row 0 (" in error


@pytest.mark.parametrize("write", [write_folder, write_jsonl, write_gz, write_parquet])
def test_names_may_be_any_bytes(tmp_path, write):
    (tmp_path / "in").mkdir()
    texts = write(tmp_path / "in")
    inside, out = (tmp_path / os.fsdecode(name) for name in (b"in\xff", b"out\xff"))
    (tmp_path / "in").rename(inside)
    for path in inside.rglob("*.*"):
        path.rename(path.with_name(os.fsdecode(b"\xfe:") + path.name))
    assert prepare("--input", inside, "--tokenizer", "train:300", "--out", out) == 0
    assert prepare("--input", inside, "--tokenizer", out, "--out", tmp_path / "again") == 0
    assert sorted(CorpusReader(tmp_path / "again").texts()) == sorted(texts)


def test_a_named_file_must_be_text(tmp_path, capsys):
    for content in (b"\xff", b"a\0"):
        (tmp_path / "a.txt").write_bytes(content)
        error = fails(capsys, "--input", tmp_path / "a.txt", "--tokenizer", "train:300", "--out", tmp_path / "out")
        assert "a.txt: not UTF-8 text (" in error


def test_a_folder_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("x")
    error = fails(capsys, "--input", tmp_path / "a.txt", "--tokenizer", "train:300", "--out",
                  tmp_path / "a.txt" / "out")
    assert "a.txt/out: can't be written (Not a directory). Choose another folder." in error


def test_a_full_disk_leaves_no_corpus_and_nothing_is_done_twice(tmp_path, capsys, monkeypatch):
    (tmp_path / "a.txt").write_text("x")

    def full(*_):
        raise OSError(28, "No space left on device")

    arguments = ("--input", tmp_path / "a.txt", "--tokenizer", "train:300", "--out", tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr("switchyard_data.indexed.IndexedWriter.add", full)
        assert "out: can't be written (No space left on device). Make room" in fails(capsys, *arguments, status=3)
    assert [name[:9] for name in os.listdir(tmp_path / "out")] == [".prepare-"]
    assert prepare(*arguments) == 0
    assert "training" not in capsys.readouterr().err  # the tokenizer was trained before
    assert sorted(os.listdir(tmp_path / "out")) == PREPARED


def test_the_program_runs_as_a_module_and_reports_by_exit_code(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "python")}

    def run(*arguments):
        command = [sys.executable, "-m", "switchyard_data", *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    good = run("prepare", "--input", tmp_path / "a.txt", "--tokenizer", "train:257", "--out", tmp_path / "out")
    assert good.returncode == 0 and "1 documents, 2 tokens, longest 2, vocabulary 257" in good.stdout
    assert "tokenizing: 1 documents" in good.stderr
    bad = run("prepare", "--input", tmp_path / "b.txt", "--tokenizer", "train:257", "--out", tmp_path / "out")
    assert bad.returncode == 2 and bad.stdout == "" and bad.stderr.count("\n") == 1
    assert run("prepare").returncode == 2


# Unusual inputs give a message, never a traceback.

@pytest.mark.parametrize("spec", ["train:99999999999999999999", "train:" + "9" * 5000, "train:1048577",
                                  "train:\u0663\u0663\u0663\u0663", "train:\u00b2\u00b2\u00b2",
                                  "train:1_000", "train: 300"])
def test_a_vocabulary_that_no_tokenizer_has(tmp_path, capsys, spec):
    (tmp_path / "a.txt").write_text("x")
    message = fails(capsys, "--input", tmp_path / "a.txt", "--out", tmp_path / "out", "--tokenizer", spec)
    assert (message == f"--tokenizer {spec[:80]}: the vocabulary must be a number from 257 to 1048576, e.g. "
                       "train:8192.")
    assert not (tmp_path / "out").exists()


def tokenizer_json(model, **more):
    return json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
                       "normalizer": None, "pre_tokenizer": None, "post_processor": None,
                       "decoder": None, "model": model} | more)


ODD_TOKENIZERS = {
    "no vocabulary": (tokenizer_json({"type": "WordLevel", "vocab": {}, "unk_token": "u"}), "its vocabulary is empty"),
    "ids above 31 bits": (tokenizer_json({"type": "WordLevel", "vocab": {"x": 4294967295}, "unk_token": "x"}),
                          "its ids go up to 4294967295"),
    "ids above 32 bits": (tokenizer_json({"type": "WordLevel", "vocab": {"x": 4294967296}, "unk_token": "x"}),
                          "not a Hugging Face tokenizer.json ("),
    "no unknown token": (tokenizer_json({"type": "WordLevel", "vocab": {"y": 0}, "unk_token": "u"}),
                         "it can't encode the inputs ("),
    "deep": ("[" * 100000 + "]" * 100000, "not a Hugging Face tokenizer.json ("),
    "not text": (b"\xff\xfe", "not a Hugging Face tokenizer.json ("),
    "a bad pattern": (tokenizer_json({"type": "WordLevel", "vocab": {"y": 0}, "unk_token": "y"},
                                     pre_tokenizer={"type": "Split", "pattern": {"Regex": "(("},
                                                    "behavior": "Isolated", "invert": False}),
                      "not a Hugging Face tokenizer.json ("),
    "merges of nothing": (tokenizer_json({"type": "BPE", "vocab": {"y": 0}, "merges": ["a b"]}),
                          "not a Hugging Face tokenizer.json ("),
}


@pytest.mark.parametrize("name", ODD_TOKENIZERS)
def test_an_odd_tokenizer_is_reported(tmp_path, capsys, name):
    content, message = ODD_TOKENIZERS[name]
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "t.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    error = fails(capsys, "--input", tmp_path / "a.txt", "--out", tmp_path / "out", "--tokenizer", tmp_path / "t.json")
    assert error.startswith("--tokenizer") and message in error
    assert not (tmp_path / "out").exists() or os.listdir(tmp_path / "out") == []


def test_a_panic_of_the_library_is_reported(tmp_path, capsys, monkeypatch):
    class Panic(BaseException):
        """Like a panic of pyo3, it is not an Exception."""

    def panic(*_, **__):
        raise Panic("index out of bounds")

    (tmp_path / "a.txt").write_text("x")
    broken = type("Broken", (), {"from_str": staticmethod(panic)})
    monkeypatch.setattr("switchyard_data.tokenizer_files.Tokenizer", broken)
    (tmp_path / "t.json").write_text("{}")
    error = fails(capsys, "--input", tmp_path / "a.txt", "--out", tmp_path / "out", "--tokenizer", tmp_path / "t.json")
    assert error.endswith("not a Hugging Face tokenizer.json (index out of bounds).")


def test_rows_of_any_depth_are_reported(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_bytes(rows(["x"]) + b'{"content": ' + b"[" * 100000 + b"]" * 100000 + b"}\n")
    error = fails(capsys, "--input", tmp_path / "a.jsonl", "--tokenizer", "train:257", "--out", tmp_path / "out")
    assert "a.jsonl:2: not valid JSON (" in error


def test_a_column_that_is_no_utf8_is_reported(tmp_path, capsys):
    bad = pyarrow.Array.from_buffers(pyarrow.string(), 1, [None, pyarrow.py_buffer(struct.pack("<ii", 0, 1)),
                                                           pyarrow.py_buffer(b"\xff")])
    pyarrow.parquet.write_table(pyarrow.table({"content": bad}), tmp_path / "rows.parquet")
    error = fails(capsys, "--input", tmp_path / "rows.parquet", "--tokenizer", "train:257", "--out", tmp_path / "out")
    assert "rows.parquet: damaged after row 0 (" in error


def test_a_name_that_is_too_long_is_reported(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("x")
    name = str(tmp_path / ("x" * 300))
    for arguments in (("--input", name, "--tokenizer", "train:257", "--out", tmp_path / "out"),
                      ("--input", tmp_path / "a.txt", "--tokenizer", name, "--out", tmp_path / "out"),
                      ("--input", tmp_path / "a.txt", "--tokenizer", "train:257", "--out", name)):
        assert name in fails(capsys, *arguments)


def test_a_state_of_any_depth_counts_as_none(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "out").mkdir()
    for text in ("[" * 100000, "3", '{"bytes": 3}', '{"bytes": {"corpus.bin": 1}}'):
        (tmp_path / "out" / "meta.json").write_text(text)
        assert prepare("--input", tmp_path / "a.txt", "--tokenizer", "train:257", "--out", tmp_path / "out") == 0


# Files of killed runs.

SLEEPER = """import sys, time
from switchyard_data import scratch_folders
with scratch_folders.Scratch(sys.argv[1], lambda _: False, lambda *_: False) as folder:
    (folder / "corpus.bin").write_bytes(b"unfinished")
    print(folder, flush=True)
    time.sleep(600)
"""


def sleeper(out):
    process = subprocess.Popen([sys.executable, "-c", SLEEPER, str(out)], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "python")})
    return process, Path(process.stdout.readline().strip())


def test_the_next_run_removes_what_a_killed_one_left_but_not_what_a_living_one_has(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    out = tmp_path / "out"
    out.mkdir()
    killed, left = sleeper(out)
    living, kept = sleeper(out)
    try:
        killed.kill()
        killed.wait()
        assert left.exists() and kept.exists()
        for state in ("new", "up to date"):
            assert prepare("--input", tmp_path / "a.txt", "--tokenizer", "train:257", "--out", out) == 0, state
            assert not left.exists() and (kept / "corpus.bin").read_bytes() == b"unfinished"
            left.mkdir()  # an empty one, for the run whose files are up to date
    finally:
        living.kill()
        living.wait()
    assert prepare("--input", tmp_path / "a.txt", "--tokenizer", "train:257", "--out", out) == 0
    assert sorted(os.listdir(out)) == PREPARED


def test_a_killed_preparation_is_cleaned_up(tmp_path):
    """The whole program, killed while it writes."""
    (tmp_path / "a.jsonl").write_bytes(rows(["some words of a text " * 50] * 20000))
    out = tmp_path / "out"
    words = [sys.executable, "-m", "switchyard_data", "prepare", "--input", str(tmp_path / "a.jsonl"),
             "--tokenizer", "train:257", "--out", str(out)]
    process = subprocess.Popen(words,
                               env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "python")},
                               stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(out.glob(".prepare-*/corpus.bin")):
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert len(list(out.glob(".prepare-*"))) == 1
    (tmp_path / "a.jsonl").write_bytes(rows(["x"]))
    assert prepare(*words[4:]) == 0
    assert sorted(os.listdir(out)) == PREPARED
