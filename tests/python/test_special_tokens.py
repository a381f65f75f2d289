"""Tokens that begin and end documents, and the tokenizer's files beside the data."""

import json
import os

import pytest
from corpus_reader import CorpusReader
from switchyard_data.__main__ import main
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

WORDS = ["one", "two", "three", "<s>", "</s>", "<|im_end|>"]
BOS, EOS, END_OF_TURN = 3, 4, 5


def prepare(*arguments):
    return main(["prepare", *map(str, arguments)])


@pytest.fixture(name="source")
def _source(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one two"}\n{"text": ""}\n{"text": "three"}\n')
    return tmp_path / "a.jsonl"


def tokenizer_folder(folder, config=None, special_tokens=None, puts_bos=False, template=None):
    """A folder as Hugging Face has it."""
    folder.mkdir()
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="one"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in WORDS[3:]])
    if puts_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in (("tokenizer_config.json", config), ("special_tokens_map.json", special_tokens)):
        if content is not None:
            (folder / name).write_text(json.dumps(content))
    if template:
        (folder / "chat_template.jinja").write_text(template)
    return folder


def documents(out):
    corpus = CorpusReader(out)
    return [corpus.ids(document) for document in range(len(corpus.sizes))]


CONFIG = {"tokenizer_class": "LlamaTokenizerFast", "bos_token": {"content": "<s>"}, "eos_token": "</s>"}


@pytest.mark.parametrize("files, options, begins, ends", [
    ({"config": CONFIG}, [], [], [EOS]),
    ({"config": CONFIG, "puts_bos": True}, [], [BOS], [EOS]),
    ({"config": CONFIG | {"add_bos_token": False}, "puts_bos": True}, [], [], [EOS]),
    ({"config": CONFIG | {"add_bos_token": True}}, [], [BOS], [EOS]),
    ({"config": CONFIG | {"add_bos_token": True}}, ["--bos", "none", "--eos", "none"], [], []),
    ({"config": CONFIG}, ["--bos", "<s>", "--eos", "<|im_end|>"], [BOS], [END_OF_TURN]),
    ({"special_tokens": {"eos_token": {"content": "</s>"}}}, [], [], [EOS]),
    ({"config": {"eos_token": None}}, [], [], []),
    ({}, ["--eos", "three"], [], [2]),
], ids=str)
def test_documents_begin_and_end_with_these_tokens(tmp_path, source, files, options, begins, ends):
    folder, out = tokenizer_folder(tmp_path / "tokenizer", **files), tmp_path / "out"
    for spec in (folder, folder / "tokenizer.json"):
        assert prepare("--input", source, "--tokenizer", spec, "--out", out, *options) == 0
        assert documents(out) == [[*begins, 0, 1, *ends], [*begins, 2, *ends]]
        meta = CorpusReader(out).meta
        assert meta["empty_documents"] == 1 and meta["tokens"] == 3 + 2 * len(begins + ends)
        for name, edge in (("bos", begins), ("eos", ends)):
            assert meta[name] == ({"token": WORDS[edge[0]], "id": edge[0]} if edge else None)
            given = f"--{name}" in options
            assert meta["options"][name] == (options[options.index(f"--{name}") + 1] if given else None)
        assert meta["options"]["tokenizer"] == str(spec) and meta["options"]["input"] == [str(source)]


def test_a_tokenizer_that_declares_no_end_says_so(tmp_path, source, capsys):
    folder = tokenizer_folder(tmp_path / "tokenizer")
    os.rename(folder / "tokenizer.json", folder / "words.json")
    (folder / "tokenizer_config.json").write_text(json.dumps(CONFIG))  # it is not of words.json
    assert prepare("--input", source, "--tokenizer", folder / "words.json", "--out", tmp_path / "out") == 0
    assert documents(tmp_path / "out") == [[0, 1], [2]]
    assert "no token ends a document: the tokenizer declares none; name one with --eos" in capsys.readouterr().out


@pytest.mark.parametrize("config, ends", [
    ({"eos_token_id": 4}, [EOS]), ({"eos_token_id": [5, 4]}, [END_OF_TURN]), ({"eos_token_id": None}, []),
    ({"eos_token_id": 6}, []), ({"eos_token_id": 2}, []), ({"eos_token_id": True}, []), ([], []),
], ids=str)
def test_a_tokenizer_that_declares_no_end_has_its_model_s(tmp_path, source, config, ends):
    folder, out = tokenizer_folder(tmp_path / "tokenizer", {"model_max_length": 1024}), tmp_path / "out"
    (folder / "config.json").write_text(json.dumps(config))
    assert prepare("--input", source, "--tokenizer", folder, "--out", out) == 0
    assert documents(out) == [[0, 1, *ends], [2, *ends]]
    declared = json.loads((out / "tokenizer_config.json").read_text())
    assert declared.get("eos_token") == (WORDS[ends[0]] if ends else None) and declared["model_max_length"] == 1024


def test_an_unknown_token_is_refused(tmp_path, source, capsys):
    folder = tokenizer_folder(tmp_path / "tokenizer", CONFIG)
    for name in ("bos", "eos"):
        assert prepare("--input", source, "--tokenizer", folder, "--out", tmp_path / "out", f"--{name}", "<end>") == 2
        assert (f"--{name} <end>: the tokenizer has no such token. Its special tokens are </s>, <s>, <|im_end|>; take "
                f"one of them, or --{name} none.") in capsys.readouterr().err


def test_a_damaged_companion_is_named(tmp_path, source, capsys):
    folder = tokenizer_folder(tmp_path / "tokenizer", CONFIG)
    for content in ("{", "[]"):
        (folder / "tokenizer_config.json").write_text(content)
        assert prepare("--input", source, "--tokenizer", folder, "--out", tmp_path / "out") == 2
        error = capsys.readouterr().err
        assert "tokenizer_config.json: not readable as JSON (" in error and error.count("\n") == 1


def test_the_files_of_a_tokenizer_lie_beside_the_data(tmp_path, source):
    special = {"eos_token": "</s>", "pad_token": "</s>"}
    folder = tokenizer_folder(tmp_path / "tokenizer", CONFIG, special, template="{{ messages }}")
    out = tmp_path / "out"
    assert prepare("--input", source, "--tokenizer", folder, "--out", out) == 0
    for name in ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"):
        assert (out / name).read_bytes() == (folder / name).read_bytes()
    assert prepare("--input", source, "--tokenizer", folder, "--out", out, "--eos", "<|im_end|>") == 0
    assert json.loads((out / "tokenizer_config.json").read_text()) == CONFIG | {"eos_token": "<|im_end|>"}
    assert json.loads((out / "special_tokens_map.json").read_text()) == special | {"eos_token": "<|im_end|>"}
    # Those of the tokenizer before don't stay.
    assert prepare("--input", source, "--tokenizer", "train:257", "--out", out) == 0
    assert sorted(os.listdir(out)) == ["corpus.bin", "corpus.idx", "meta.json", "tokenizer.json",
                                       "tokenizer_config.json"]


def test_a_changed_companion_counts_as_a_change(tmp_path, source, capsys):
    folder = tokenizer_folder(tmp_path / "tokenizer", CONFIG)
    arguments = ("--input", source, "--tokenizer", folder, "--out", tmp_path / "out")
    for expected in ("", "up to date: "):
        assert prepare(*arguments) == 0
        assert capsys.readouterr().out.startswith(f"{expected}{tmp_path}")
    (folder / "chat_template.jinja").write_text("new")
    assert prepare(*arguments) == 0
    assert not capsys.readouterr().out.startswith("up to date")
    assert (tmp_path / "out" / "chat_template.jinja").read_text() == "new"


@pytest.mark.parametrize("options, special", [
    ([], ["<|endoftext|>"]), (["--eos", "none"], []), (["--eos", "<e>", "--bos", "<b>"], ["<b>", "<e>"]),
    (["--eos", "<e>", "--bos", "<e>"], ["<e>"]),
], ids=str)
def test_a_trained_tokenizer_has_tokens_for_the_ends(tmp_path, source, options, special, capsys):
    out = tmp_path / "out"
    size = 256 + len(special)
    assert prepare("--input", source, "--tokenizer", f"train:{size - 1}", "--out", out, *options) == 2
    assert f"the vocabulary must be a number from {size} to" in capsys.readouterr().err
    assert prepare("--input", source, "--tokenizer", f"train:{size}", "--out", out, *options) == 0
    corpus = CorpusReader(out)
    assert corpus.texts() == ["one two", "three"]
    assert corpus.meta["vocab_size"] == size
    assert [corpus.tokenizer.id_to_token(i) for i in range(len(special))] == special
    for document in documents(out):
        assert [i for i in document if i < len(special)] == [
            corpus.tokenizer.token_to_id(corpus.meta[name]["token"]) for name in ("bos", "eos") if corpus.meta[name]]


def test_transformers_reads_the_folder(tmp_path, source):
    from transformers import AutoTokenizer  # slow to load

    folder = tokenizer_folder(tmp_path / "tokenizer")
    cases = {"train:270": ([], None, "<|endoftext|>"), "train:271": (["--bos", "<b>", "--eos", "<e>"], "<b>", "<e>"),
             str(folder): (["--eos", "</s>"], None, "</s>")}
    for spec, (options, bos, eos) in cases.items():
        out = tmp_path / "out"
        assert prepare("--input", source, "--tokenizer", spec, "--out", out, *options) == 0
        tokenizer = AutoTokenizer.from_pretrained(out)
        assert (tokenizer.bos_token, tokenizer.eos_token) == (bos, eos)
        corpus = CorpusReader(out)
        assert len(tokenizer) == corpus.meta["vocab_size"]
        assert tokenizer("one two").input_ids + [tokenizer.eos_token_id] == documents(out)[0][1 if bos else 0:]
        assert tokenizer.decode(documents(out)[0], skip_special_tokens=True) == "one two"
