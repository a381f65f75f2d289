"""Conversations: rows with messages through a chat template, and a mask of the tokens that count."""

import json

import pyarrow
import pyarrow.parquet
import pytest
from corpus_reader import CorpusReader
from switchyard_data.__main__ import main
from test_interrupted_prepare import content, counted_batches
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

CHATML = """{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""

MARKED = """{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}{% generation %}{{- message.content + '<|im_end|>' }}{% endgeneration %}
{%- else %}{{- message.content + '<|im_end|>' }}{% endif %}
{{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""

# The first system message apart, content stripped, tools as JSON, begin and end from the tokenizer.
HEADERS = """{{- bos_token }}
{%- if tools %}{{- 'tools: ' + tools | tojson(indent=2) + '\\n' }}{% endif %}
{%- for message in messages %}
    {%- if loop.index0 > 20 %}{% break %}{% endif %}
    {%- if message.role not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('unknown role ' + message.role) }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '<|im_end|>\\n\\n' + message['content'] | trim + eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant<|im_end|>\\n\\n' }}{%- endif %}"""

PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"  # without tokens of its own
LAST_IS_SPECIAL = ("{% for m in messages %}{{ m.role + (' (last)' if loop.last else '') + ': ' + m.content }}\n"
                   "{% endfor %}")

TALK = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "what is it? ünï"},
        {"role": "assistant", "content": "it is ünï 😀."}, {"role": "user", "content": "why"},
        {"role": "assistant", "content": "because\nit is"}]
OTHER = [{"role": "user", "content": "it is what"}, {"role": "assistant", "content": "so"},
         {"role": "user", "content": "is it"}]
SILENT = [{"role": "user", "content": "nobody answers"}]


def prepare(*arguments):
    return main(["prepare", *map(str, arguments)])


def write_tokenizer(folder, template=CHATML, config=None):
    folder.mkdir(exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True) for token in ("<|begin|>", "<|im_start|>", "<|im_end|>", "<|end|>")]
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(["what is it because why it is brief user assistant"] * 20, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    declared = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin|>", "eos_token": "<|end|>"}
    if template is not None:
        declared["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(declared | (config or {})))
    return folder


def write_rows(path, conversations, **more):
    path.write_text("".join(json.dumps({"messages": talk} | more) + "\n" for talk in conversations))
    return path


class Masked(CorpusReader):
    def __init__(self, folder):
        super().__init__(folder)
        mask = (folder / "corpus.mask").read_bytes()
        assert len(mask) == sum(self.sizes) and set(mask) <= {0, 1}
        size = len(self.data) // len(mask)
        self.counts = [mask[at // size:at // size + length] for at, length in zip(self.pointers, self.sizes)]

    def answers(self, document):
        """The texts that count, one after another."""
        answers, before = [], 0
        for number, counts in zip(self.ids(document), self.counts[document]):
            if counts and not before:
                answers.append([])
            if counts:
                answers[-1].append(number)
            before = counts
        return [self.tokenizer.decode(ids, skip_special_tokens=False) for ids in answers]

    def whole(self, document):
        return self.tokenizer.decode(self.ids(document), skip_special_tokens=False)


@pytest.mark.parametrize("template", [CHATML, MARKED], ids=["unmarked", "marked"])
def test_only_answers_count_with_their_end_of_turn(tmp_path, capsys, template):
    source = write_rows(tmp_path / "a.jsonl", [TALK, SILENT, OTHER])
    out = tmp_path / "out"
    assert prepare("--input", source, "--messages", "--tokenizer", write_tokenizer(tmp_path / "t", template),
                   "--out", out) == 0
    corpus = Masked(out)
    assert [corpus.answers(document) for document in range(2)] == [
        ["it is ünï 😀.<|im_end|>", "because\nit is<|im_end|>"], ["so<|im_end|>"]]
    assert corpus.whole(1) == ("<|im_start|>user\nit is what<|im_end|>\n<|im_start|>assistant\nso<|im_end|>\n"
                               "<|im_start|>user\nis it<|im_end|>\n")
    meta = corpus.meta
    assert (meta["eos"], meta["bos"], meta["documents"], meta["empty_documents"]) == (None, None, 2, 1)
    assert meta["labels"] == sum(map(sum, corpus.counts)) and meta["bytes"]["corpus.mask"] == sum(corpus.sizes)
    printed = capsys.readouterr().out
    assert f"{meta['labels']} tokens are answers and count in the loss" in printed
    assert "skipped: 1 conversations without answers" in printed


@pytest.mark.parametrize("template", [CHATML, MARKED, HEADERS, PLAIN], ids=["chatml", "marked", "headers", "plain"])
def test_tokens_and_marks_are_those_of_transformers(tmp_path, template):
    from transformers import AutoTokenizer  # slow to load

    tools = [{"type": "function", "function": {"name": "größe", "parameters": {"a": 1}}}]
    source, out = write_rows(tmp_path / "a.jsonl", [TALK, OTHER], tools=tools), tmp_path / "out"
    folder = write_tokenizer(tmp_path / "t", template)
    assert prepare("--input", source, "--messages", "--tokenizer", folder, "--out", out) == 0
    corpus, tokenizer = Masked(out), AutoTokenizer.from_pretrained(out)
    assert tokenizer.chat_template == template
    for document, talk in enumerate([TALK, OTHER]):
        expected = tokenizer.apply_chat_template(talk, tools=tools, return_dict=True,
                                                 return_assistant_tokens_mask=template == MARKED)
        assert corpus.ids(document) == expected["input_ids"]
        if template == MARKED:
            assert list(corpus.counts[document]) == expected["assistant_masks"]


@pytest.mark.parametrize("template, answers", [
    (HEADERS, ["it is ünï 😀.<|end|>", "because\nit is<|end|>"]),
    # Where the template has no token after an answer, the line's end is what ends it.
    (PLAIN, ["assistant: it is ünï 😀.\n", "assistant: because\nit is\n"]),
], ids=["headers", "plain"])
def test_an_answer_is_what_its_message_adds_to_the_prompt(tmp_path, template, answers):
    source, out = write_rows(tmp_path / "a.jsonl", [TALK]), tmp_path / "out"
    folder = write_tokenizer(tmp_path / "t", template)
    assert prepare("--input", source, "--messages", "--tokenizer", folder, "--out", out) == 0
    assert Masked(out).answers(0) == answers


def test_an_answer_that_is_empty_or_a_part_of_the_token_behind_it_ends_there(tmp_path):
    talk = [{"role": role, "content": content} for answer in ("", ">", " |", "is")
            for role, content in (("user", "why"), ("assistant", answer))]
    source, out = write_rows(tmp_path / "a.jsonl", [talk]), tmp_path / "out"
    assert prepare("--input", source, "--messages", "--tokenizer", write_tokenizer(tmp_path / "t", CHATML),
                   "--out", out) == 0
    assert Masked(out).answers(0) == [f"{answer}<|im_end|>" for answer in ("", ">", " |", "is")]


def test_a_token_that_is_partly_in_an_answer_counts(tmp_path):
    template = "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %} {% generation %}{{ m.content }}" \
               "{% endgeneration %}{% else %} {{ m.content }}\n{% endif %}{% endfor %}"
    folder = write_tokenizer(tmp_path / "t", template)
    source = write_rows(tmp_path / "a.jsonl", [[{"role": "user", "content": "why"},
                                                {"role": "assistant", "content": "because"}]])
    assert prepare("--input", source, "--messages", "--tokenizer", folder, "--out", tmp_path / "out") == 0
    assert "".join(Masked(tmp_path / "out").answers(0)).startswith(" because")  # the space belongs to its first token


def test_ends_that_were_asked_for_count_after_an_answer(tmp_path):
    source, out = write_rows(tmp_path / "a.jsonl", [TALK, OTHER]), tmp_path / "out"
    assert prepare("--input", source, "--messages", "--tokenizer", write_tokenizer(tmp_path / "t"), "--out", out,
                   "--bos", "<|begin|>", "--eos", "<|end|>") == 0
    corpus = Masked(out)
    for document, counts in ((0, 1), (1, 0)):
        assert (corpus.ids(document)[0], corpus.ids(document)[-1]) == (0, 3)
        assert (corpus.counts[document][0], corpus.counts[document][-1]) == (0, counts)


def test_parquet_has_conversations_too(tmp_path):
    out = tmp_path / "out"
    pyarrow.parquet.write_table(pyarrow.table({"id": [1, 2], "chat": [TALK, OTHER]}), tmp_path / "a.parquet")
    assert prepare("--input", tmp_path / "a.parquet", "--messages", "--text-key", "chat", "--tokenizer",
                   write_tokenizer(tmp_path / "t"), "--out", out) == 0
    assert Masked(out).answers(1) == ["so<|im_end|>"]


# It asks whether a message has calls, as published ones do.
CALLS = """{%- if tools %}{{- tools | length ~ ' tools: ' ~ tools[0].name + '\n' }}{% endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if 'calls' in message %}{{- message.calls | length ~ ' calls' }}{% else %}{{- message.content }}{% endif %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"""


def test_keys_that_only_other_messages_of_a_table_have_are_not_there(tmp_path):
    out, tools = tmp_path / "out", [{"name": "größe"}, {"name": "b"}]
    talk = [{"role": "user", "content": "what"}, {"role": "assistant", "content": None, "calls": ["f"]},
            {"role": "assistant", "content": "so"}]
    table = pyarrow.table({"messages": [talk, OTHER[:2]], "tools": [json.dumps(tools), ""]})
    assert table["messages"][1].as_py()[0]["calls"] is None
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": talk, "tools": tools}) + "\n" +
                                      json.dumps({"messages": OTHER[:2], "tools": []}) + "\n")
    folder = write_tokenizer(tmp_path / "t", CALLS)
    for name in ("a.parquet", "a.jsonl"):
        assert prepare("--input", tmp_path / name, "--messages", "--tokenizer", folder, "--out", out, "--force") == 0
        corpus = Masked(out)
        assert corpus.whole(0).startswith("2 tools: größe\n<|im_start|>user\nwhat<|im_end|>")
        assert corpus.answers(0) == ["1 calls<|im_end|>", "so<|im_end|>"]
        assert corpus.whole(1).startswith("<|im_start|>user\nit is what")


@pytest.mark.parametrize("tools, message", [("[{", "is text, but not valid JSON ("), ('{"a": 1}', "is not a list.")])
def test_tools_that_are_no_list_are_reported(tmp_path, capsys, tools, message):
    source = write_rows(tmp_path / "a.jsonl", [TALK], tools=tools)
    assert prepare("--input", source, "--messages", "--tokenizer", write_tokenizer(tmp_path / "t"), "--out",
                   tmp_path / "out") == 2
    assert f'a.jsonl:1: "tools" {message}' in capsys.readouterr().err


def test_a_template_may_come_from_a_file_and_goes_with_the_tokenizer(tmp_path):
    source, out = write_rows(tmp_path / "a.jsonl", [TALK]), tmp_path / "out"
    (tmp_path / "own.jinja").write_text(CHATML)
    for tokenizer in (write_tokenizer(tmp_path / "t", HEADERS), "train:300"):
        assert prepare("--input", source, "--messages", "--tokenizer", tokenizer, "--chat-template",
                       tmp_path / "own.jinja", "--out", out) == 0
        assert Masked(out).answers(0)[0] == "it is ünï 😀.<|im_end|>"
        assert (out / "chat_template.jinja").read_text() == CHATML
    before = content(out)
    (tmp_path / "own.jinja").write_text(PLAIN)
    assert prepare("--input", source, "--messages", "--tokenizer", "train:300", "--chat-template",
                   tmp_path / "own.jinja", "--out", out) == 0
    assert content(out) != before


def test_the_default_of_several_templates_is_taken(tmp_path):
    templates = [{"name": "rag", "template": "x"}, {"name": "default", "template": CHATML}]
    source, out = write_rows(tmp_path / "a.jsonl", [TALK]), tmp_path / "out"
    folder = write_tokenizer(tmp_path / "t", config={"chat_template": templates})
    assert prepare("--input", source, "--messages", "--tokenizer", folder, "--out", out) == 0
    assert Masked(out).answers(0)[1] == "because\nit is<|im_end|>"


def test_texts_after_conversations_leave_no_mask(tmp_path):
    source, out = write_rows(tmp_path / "a.jsonl", [TALK], text="x"), tmp_path / "out"
    folder = write_tokenizer(tmp_path / "t")
    assert prepare("--input", source, "--messages", "--tokenizer", folder, "--out", out) == 0
    assert (out / "corpus.mask").exists()
    assert prepare("--input", source, "--tokenizer", folder, "--out", out) == 0
    assert not (out / "corpus.mask").exists() and "labels" not in CorpusReader(out).meta


def test_interrupted_it_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("switchyard_data.prepare.BATCH_CHARACTERS", 100)
    monkeypatch.setattr("switchyard_data.prepare.SAVE_SECONDS", 0)
    source, out = write_rows(tmp_path / "a.jsonl", [TALK, SILENT, OTHER] * 4), tmp_path / "out"
    arguments = ("--input", source, "--messages", "--tokenizer", write_tokenizer(tmp_path / "t"), "--out", out)
    assert prepare(*arguments) == 0
    whole = content(out)
    (out / "corpus.idx").unlink()
    with counted_batches(monkeypatch, 4):
        assert prepare(*arguments) == 130
    with counted_batches(monkeypatch) as batches:
        assert prepare(*arguments) == 0
    assert content(out) == whole and 0 < sum(map(len, batches)) < 12


@pytest.mark.parametrize("template, rows, message", [
    (None, [TALK], "it has no chat template, which --messages needs. Name a file with one (Jinja) with "
                   "--chat-template."),
    ("{% if %}", [TALK], "the chat template is not valid ("),
    ("{{ 1 // 0 }}", [TALK], "a.jsonl:1: the chat template can't render the conversation (integer division"),
    ("{{ range(10 ** 9) }}", [TALK], "a.jsonl:1: the chat template can't render the conversation ("),
    (HEADERS, [TALK, [{"role": "cook", "content": "x"}]],
     "a.jsonl:2: the chat template can't render the conversation (unknown role cook). Fix or delete the row."),
    (CHATML, [[{"role": "user"}]], "a.jsonl:1: the chat template can't render the conversation ("),
    (LAST_IS_SPECIAL, [TALK], "a.jsonl:1: the chat template renders message 3 differently where the conversation ends "
                              "with it, so it is unknown which tokens are answers."),
    (CHATML, ["text"], "a.jsonl:1: \"messages\" is not a list of messages, each with a role and content."),
    (CHATML, [["text"]], "a.jsonl:1: \"messages\" is not a list of messages"),
    (CHATML, [[{"role": "user", "content": "\ud800"}]], "a.jsonl:1: \"messages\" is not valid Unicode"),
    (MARKED, [[{"role": "user", "content": "\ufdd0"}]], "a.jsonl:1: the conversation holds the character U+FDD0"),
    (CHATML, [SILENT, []], "no conversation in 1 files has an answer (a message with role assistant)"),
])
def test_what_is_wrong_with_a_conversation_is_said(tmp_path, capsys, template, rows, message):
    source = write_rows(tmp_path / "a.jsonl", rows)
    assert prepare("--input", source, "--messages", "--tokenizer", write_tokenizer(tmp_path / "t", template), "--out",
                   tmp_path / "out") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("switchyard: ") and message in error


def test_other_mistakes(tmp_path, capsys):
    folder = write_tokenizer(tmp_path / "t")
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "b.jsonl").write_text('{"id": 1, "chat": []}\n')
    out = ("--tokenizer", folder, "--out", tmp_path / "out")
    for arguments, message in (
            (("--input", tmp_path / "a.txt", "--messages", *out), "a.txt: no file with rows. --messages reads .jsonl"),
            (("--input", tmp_path / "b.jsonl", "--messages", *out),
             'b.jsonl:1: no key "messages"; its keys are "id", "chat". Name the right one with --text-key.'),
            (("--input", tmp_path / "a.txt", "--chat-template", "x", *out), "--chat-template is for --messages."),
            (("--input", tmp_path / "b.jsonl", "--messages", "--chat-template", tmp_path / "none", *out),
             "none: can't be read (")):
        assert prepare(*arguments) == 2
        assert message in capsys.readouterr().err
