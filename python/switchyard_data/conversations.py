"""Conversations as documents: rows with messages, rendered through a chat template; only answers count."""

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

from . import DataError
from .inputs import MESSAGES_KEYS, Document

ANSWERS = "assistant"  # role of the messages that count
BEGIN, END = "\ufdd0", "\ufdd1"  # around what a template marks as an answer; Unicode keeps both for such uses


class _Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: the template itself says what is an answer."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    def _marked(self, caller):
        return BEGIN + caller() + END


def _refuse(message):
    raise jinja2.TemplateError(message)


def _environment():
    """What chat templates expect, as transformers has it."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, **{"ensure_ascii": False} | options)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment


class Conversations:
    """Reads rows as conversations. The text of a row is all its messages as the template renders them.

    Its answers are the parts that the template marks with {% generation %}. Templates without these marks are rendered
    up to each message of the assistant, with the prompt for it and with the message: what is new is the answer, with
    its end-of-turn token. White space after that token is not part of it.
    """

    reads_files = False

    def __init__(self, template, special_tokens, key=None):
        self.keys = (key,) if key else MESSAGES_KEYS
        self._special_tokens = special_tokens
        self._marks = "endgeneration" in template
        try:
            self._template = _environment().from_string(template)
        except jinja2.TemplateError as error:
            raise DataError(f"the chat template is not valid ({error}). Fix it, or name another with --chat-template."
                            ) from error

    def columns(self, key, names):
        return [key, *(name for name in ("tools",) if name in names)]

    def document(self, row, key, where):
        messages = row[key]
        if not isinstance(messages, list) or not all(
                isinstance(message, dict) and isinstance(message.get("role"), str) for message in messages):
            raise DataError(f"{where}: \"{key}\" is not a list of messages, each with a role and content. Name the key "
                            "of the messages with --text-key.")
        if not messages:
            return Document("", [])
        messages, tools = [_without_nulls(message) for message in messages], _tools(row.get("tools"), where)
        text = self._render(messages, tools, where)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(f"{where}: \"{key}\" is not valid Unicode ({error.reason}). Fix or delete the row."
                            ) from error
        if not self._marks:
            return Document(text, self._answers(text, messages, tools, where))
        if any(mark in json.dumps([messages, tools], ensure_ascii=False) for mark in (BEGIN, END)):
            raise DataError(f"{where}: the conversation holds the character U+FDD0 or U+FDD1. Delete it.")
        return _unmarked(text)

    def _render(self, messages, tools, where, prompt=False):
        try:
            return self._template.render(messages=messages, tools=tools, documents=None, add_generation_prompt=prompt,
                                         **self._special_tokens)
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError,
                RecursionError) as error:
            raise DataError(f"{where}: the chat template can't render the conversation ({error}). Fix or delete the "
                            "row.") from error

    def _answers(self, text, messages, tools, where):
        answers = []
        for number, message in enumerate(messages):
            if message["role"] != ANSWERS:
                continue
            before = self._render(messages[:number], tools, where, prompt=True)
            through = self._render(messages[:number + 1], tools, where)
            if not (text.startswith(through) and through.startswith(before)):
                raise DataError(f"{where}: the chat template renders message {number + 1} differently where the "
                                "conversation ends with it, so it is unknown which tokens are answers. Mark them in a "
                                "template of your own ({% generation %}) and name it with --chat-template.")
            answers.append((len(before), len(before) + _answer_size(through[len(before):], message.get("content"))))
        return answers


def _without_nulls(message):
    """In a table, all messages have the keys that one of them has, and templates ask which are there."""
    return {key: value for key, value in message.items() if value is not None or key == "content"}


def _tools(tools, where):
    """A list of tools, which a table may have as JSON; None if there are none."""
    if isinstance(tools, str) and tools.strip():
        try:
            tools = json.loads(tools)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: \"tools\" is text, but not valid JSON ({error}). Fix or delete the row."
                            ) from error
        if not isinstance(tools, list):
            raise DataError(f"{where}: \"tools\" is not a list. Fix or delete the row.")
    return tools or None


def _answer_size(rendered, content):
    """Characters up to the end-of-turn token, without the white space that follows; all where there is no token."""
    content = content.strip() if isinstance(content, str) else ""
    after = rendered[rendered.find(content) + len(content):] if content in rendered else rendered
    return len(rendered) - (len(after) - len(after.rstrip()) if after.strip() else 0)


def _unmarked(text):
    """The text without marks, and the parts that were marked."""
    parts, answers, size = [], [], 0
    for part in text.split(BEGIN):
        answer, found, rest = part.partition(END)
        if found and answer:
            answers.append((size, size + len(answer)))
        parts += [answer, rest]
        size += len(answer) + len(rest)
    return Document("".join(parts), answers)
