"""An interrupted preparation leaves nothing that looks complete, and goes on where it was."""

import builtins
import contextlib
import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from corpus_reader import CorpusReader
from switchyard_data import tokenizing
from switchyard_data.__main__ import main
from test_prepare import PREPARED, rows

TEXTS = [f"document {i}, " * (i % 5 + 1) for i in range(60)]


def prepare(*arguments):
    return main(["prepare", *map(str, arguments)])


def write_inputs(folder):
    """Every kind of file, with documents that are skipped and lines that are empty."""
    folder.mkdir()
    for i, text in enumerate(TEXTS[:5]):
        (folder / f"a{i}.txt").write_text(text)
    (folder / "b.txt").write_bytes(b"\xff")
    (folder / "c.jsonl").write_bytes(rows(TEXTS[5:20]) + b"\n\n" + rows(["", *TEXTS[20:25]]))
    (folder / "d.jsonl.gz").write_bytes(gzip.compress(rows(TEXTS[25:40])))
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS[40:]}), folder / "e.parquet", row_group_size=7)
    return folder


@pytest.fixture(name="small_steps", autouse=True)
def _small_steps(monkeypatch):
    monkeypatch.setattr("switchyard_data.prepare.BATCH_CHARACTERS", 100)
    monkeypatch.setattr("switchyard_data.prepare.SAVE_SECONDS", 0)


@contextlib.contextmanager
def counted_batches(monkeypatch, interrupted_at=None):
    """The texts of each batch that is encoded; the one with a number is interrupted."""
    batches, encode = [], tokenizing.encode

    def counting(tokenizer, texts):
        if len(batches) == interrupted_at:
            raise KeyboardInterrupt
        batches.append(texts)
        return encode(tokenizer, texts)

    with monkeypatch.context() as patch:
        patch.setattr(tokenizing, "encode", counting)
        yield batches


def content(folder):
    return {name: (folder / name).read_bytes() for name in os.listdir(folder)}


def test_it_goes_on_after_the_last_batch_that_was_saved(tmp_path, monkeypatch, capsys):
    source, out = write_inputs(tmp_path / "in"), tmp_path / "out"
    arguments = ("--input", source, "--tokenizer", "train:300", "--out", out)
    with counted_batches(monkeypatch) as all_batches:
        assert prepare(*arguments) == 0
    whole = content(out)
    assert CorpusReader(out).texts() == TEXTS and len(all_batches) > 15
    for first, second in ((0, 1), (1, 2), (7, 3), (len(all_batches) - 1, 0)):
        (out / "meta.json").unlink()
        (out / "corpus.idx").unlink()
        before = content(out)
        done = []
        for stop in (first, second):
            with counted_batches(monkeypatch, stop) as batches:
                assert prepare(*arguments) == 130
            assert "switchyard: interrupted. The same command goes on from there." in capsys.readouterr().err
            done += batches
            left = {name: data for name, data in before.items() if name in os.listdir(out)}
            assert left == before  # what was there stays, and without an index it is no corpus
            assert [name[:9] for name in os.listdir(out) if name not in before] == [".prepare-"]
        with counted_batches(monkeypatch) as batches:
            assert prepare(*arguments) == 0
        assert "training a tokenizer" not in capsys.readouterr().err
        assert done + batches == all_batches
        assert content(out) == whole


@pytest.mark.parametrize("change", ["option", "input", "force"])
def test_with_other_options_it_starts_anew(tmp_path, monkeypatch, change):
    source, out = write_inputs(tmp_path / "in"), tmp_path / "out"
    arguments = ["--input", source, "--tokenizer", "train:300", "--out", out]
    with counted_batches(monkeypatch, 5) as batches:
        assert prepare(*arguments) == 130
    if change == "input":
        (source / "a0.txt").write_text(TEXTS[0] + "!")
    with counted_batches(monkeypatch) as batches:
        assert prepare(*arguments, *{"option": ["--eos", "none"], "input": [], "force": ["--force"]}[change]) == 0
    assert sum(len(batch) for batch in batches) == len(TEXTS) + 1  # with the empty one
    assert sorted(os.listdir(out)) == PREPARED
    assert (CorpusReader(out).meta["eos"] is None) == (change == "option")


def test_before_libraries_are_loaded_nothing_is_written(tmp_path, monkeypatch, capsys):
    load = builtins.__import__

    def stop(name, *rest):
        if name == "prepare":
            raise KeyboardInterrupt
        return load(name, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", stop)
        assert prepare("--input", tmp_path / "a.txt", "--tokenizer", "train:257", "--out", tmp_path / "out") == 130
    assert capsys.readouterr().err == "switchyard: interrupted. Nothing was written.\n"
    assert os.listdir(tmp_path) == []


def test_before_anything_is_saved_nothing_stays(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.txt").write_text("x")
    prepare("--input", tmp_path / "a.txt", "--tokenizer", "train:257", "--out", tmp_path / "first")
    with counted_batches(monkeypatch, 0):
        assert prepare("--input", tmp_path / "a.txt", "--tokenizer", tmp_path / "first", "--out",
                       tmp_path / "out") == 130
    assert "switchyard: interrupted. Nothing was written." in capsys.readouterr().err
    assert os.listdir(tmp_path / "out") == []


def test_a_state_without_its_files_is_no_state(tmp_path, monkeypatch):
    source, out = write_inputs(tmp_path / "in"), tmp_path / "out"
    arguments = ("--input", source, "--tokenizer", "train:300", "--out", out)
    for name, kept in (("corpus.bin", 10), ("lengths", 0), ("state.json", 40)):
        with counted_batches(monkeypatch, 5):
            assert prepare(*arguments, "--force") == 130
        scratch, = out.glob(".prepare-*")
        os.truncate(scratch / name, kept)
        assert prepare(*arguments) == 0
        assert CorpusReader(out).texts() == TEXTS


@pytest.mark.parametrize("moves", range(len(PREPARED)))
def test_stopped_between_two_files_it_leaves_no_corpus(tmp_path, monkeypatch, moves):
    """Neither of the old files nor of the new ones."""
    source, out = tmp_path / "a.txt", tmp_path / "out"
    source.write_text("ab")
    arguments = ("--input", source, "--tokenizer", "train:257", "--out", out)
    assert prepare(*arguments) == 0
    replace, done = os.replace, []

    def stop(old, new):
        if new.parent == out:
            if len(done) == moves:
                raise KeyboardInterrupt
            done.append(new)
        replace(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop)
        assert prepare(*arguments, "--force") == 130
    assert len(done) == moves and not (out / "corpus.idx").exists()
    assert prepare(*arguments) == 0
    assert sorted(os.listdir(out)) == PREPARED and CorpusReader(out).texts() == ["ab"]


KILLED = """import sys
from switchyard_data import prepare, __main__
prepare.BATCH_CHARACTERS, prepare.SAVE_SECONDS = 100, 0
sys.exit(__main__.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_program_goes_on(tmp_path, monkeypatch, number):
    texts, out = [f"some words, {i} " * 5 for i in range(300)], tmp_path / "out"
    (tmp_path / "a.jsonl").write_bytes(rows(texts))
    words = ["prepare", "--input", str(tmp_path / "a.jsonl"), "--tokenizer", "train:257", "--out", str(out)]
    process = subprocess.Popen([sys.executable, "-c", KILLED, *words], stderr=subprocess.DEVNULL,
                               env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "python")})
    saved = 0
    while process.poll() is None and saved < 50:
        saved = sum(path.stat().st_size for path in out.glob(".prepare-*/lengths"))
        time.sleep(0.002)
    process.send_signal(number)
    assert process.wait() in (-number, 128 + number)
    assert [name[:9] for name in os.listdir(out)] == [".prepare-"]
    with counted_batches(monkeypatch) as batches:
        assert main(words) == 0
    assert 0 < sum(len(batch) for batch in batches) <= len(texts) - 50 // 4
    assert CorpusReader(out).texts() == texts
