"""The files of a tokenizer: tokenizer.json, and what Hugging Face's programs read beside it."""

import contextlib
import dataclasses
import json
import os
from pathlib import Path

from tokenizers import Tokenizer

from . import DataError

CONFIG, SPECIAL_TOKENS, CHAT_TEMPLATE = "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"
COMPANIONS = (CONFIG, SPECIAL_TOKENS, "added_tokens.json", CHAT_TEMPLATE, "chat_template.json")
SLOW = ("tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")  # files of tokenizers that are written in Python
LFS_POINTER = "version https://git-lfs"  # how the text that Git LFS puts in place of a file begins
MOST_TOKENS = 1 << 31  # token files hold signed 32-bit integers


@contextlib.contextmanager
def told(what):
    """Turns the library's errors into DataErrors that begin with `what`. Its panics are not Exceptions."""
    try:
        yield
    except (DataError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise DataError(f"{what} ({error}).") from error


def vocabulary_size(tokenizer):
    """One above the largest id, because added tokens may leave gaps."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


@dataclasses.dataclass
class TokenizerFiles:
    """A tokenizer with its companions. companions: content of each file, by name."""

    tokenizer: Tokenizer
    companions: dict = dataclasses.field(default_factory=dict)

    def declared(self, name):
        """The token that is declared as `name`, such as "eos_token"; None if there is none."""
        for file in (CONFIG, SPECIAL_TOKENS):
            token = self._object(file).get(name)
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str) and token:
                return token
        return None

    def special_tokens(self):
        """All declared tokens that are single ones, by name."""
        names = {name for file in (CONFIG, SPECIAL_TOKENS) for name in self._object(file) if name.endswith("_token")}
        return {name: token for name in sorted(names) if (token := self.declared(name))}

    def chat_template(self):
        """The one that is used for conversations; None if there is none."""
        if CHAT_TEMPLATE in self.companions:
            return self.companions[CHAT_TEMPLATE].decode("utf-8", "replace")
        for file in (CONFIG, "chat_template.json"):
            template = self._object(file).get("chat_template")
            if isinstance(template, list):  # several with names
                template = next((entry.get("template") for entry in template if entry.get("name") == "default"), None)
            if isinstance(template, str):
                return template
        return None

    def declare(self, name, token):
        """Makes `token` the one that is declared as `name`."""
        if self.declared(name) == token:
            return
        for file in (CONFIG, SPECIAL_TOKENS):
            if file == CONFIG or file in self.companions:
                self.companions[file] = _json(self._object(file) | {name: token})

    def begins_with(self, name):
        """Whether the tokenizer itself puts the token that is declared as `name` before each text."""
        token, config = self.declared(name), self._object(CONFIG)
        if token is None or isinstance(config.get(f"add_{name}"), bool):
            return token is not None and config[f"add_{name}"]
        with told("--tokenizer: it can't encode an empty text"):
            return self.tokenizer.encode("").ids[:1] == [self.tokenizer.token_to_id(token)]

    def save(self, folder):
        """Writes the files, so that transformers' AutoTokenizer reads the folder. Returns their names."""
        config = self._object(CONFIG)
        if "tokenizer_class" not in config:
            general = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
            self.companions[CONFIG] = _json(general | config)
        # Its own save() takes no path that is not Unicode.
        (folder / "tokenizer.json").write_text(self.tokenizer.to_str(pretty=True), encoding="utf-8")
        for name, content in self.companions.items():
            (folder / name).write_bytes(content)
        return ["tokenizer.json", *self.companions]

    def _object(self, name):
        return json.loads(self.companions[name]) if name in self.companions else {}


def _json(value):
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def load(path):
    """The tokenizer of a folder or file, without padding and truncation, so that documents stay complete.

    A file that is called tokenizer.json belongs to its folder; one with another name is alone.
    """
    folder = Path(path)
    if os.path.isdir(path):  # unlike Path.is_dir, it accepts impossible names
        path = Path(path, "tokenizer.json")
    elif folder.name == "tokenizer.json":
        folder = folder.parent
    else:
        folder = None
    if not os.path.isfile(path):
        if folder and (other := next((name for name in SLOW if (folder / name).is_file()), None)):
            raise DataError(f"--tokenizer {folder}: it has {other}, but no tokenizer.json. Write one in Python, with "
                            "the package transformers: from transformers import AutoTokenizer; "
                            f"AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})")
        raise DataError(f"--tokenizer {path}: no such file. Give a Hugging Face tokenizer.json, or a folder with one, "
                        "as hf download NAME --local-dir FOLDER makes it of a model on the hub, or train:8192 to train "
                        "one on the inputs.")
    with told(f"--tokenizer {path}: not a Hugging Face tokenizer.json"):
        text = Path(path).read_text(encoding="utf-8")
        if text.startswith(LFS_POINTER):
            raise DataError(f"--tokenizer {path}: it is only a pointer to the file, by Git LFS. Fetch the file with "
                            "git lfs pull.")
        tokenizer = Tokenizer.from_str(text)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        size = vocabulary_size(tokenizer)
    if not 1 <= size <= MOST_TOKENS:
        raise DataError(f"--tokenizer {path}: its ids go up to {size - 1}; token files hold ids below {MOST_TOKENS}. "
                        "Take a tokenizer with a smaller vocabulary."
                        if size else f"--tokenizer {path}: its vocabulary is empty. Take another, or train:8192 to "
                                     "train one on the inputs.")
    files = TokenizerFiles(tokenizer, _companions(folder) if folder else {})
    if folder and files.declared("eos_token") is None and (token := _token_of_model(folder, tokenizer)):
        files.declare("eos_token", token)
    return files


def _token_of_model(folder, tokenizer):
    """The token that ends a text by the model's config.json, as GPT-2's says it; None if there is none. An ordinary
    token comes from a default of transformers and not from the tokenizer."""
    try:
        ids = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("eos_token_id")
    except (OSError, ValueError, RecursionError, AttributeError):
        return None
    first = ids[0] if isinstance(ids, list) and ids else ids
    token = tokenizer.get_added_tokens_decoder().get(first) if type(first) is int else None
    return token.content if token and token.special else None


def _companions(folder):
    companions = {}
    for name in COMPANIONS:
        path = folder / name
        if not path.is_file():
            continue
        try:
            companions[name] = path.read_bytes()
            if path.suffix == ".json" and not isinstance(json.loads(companions[name]), dict):
                raise ValueError("it is not an object")
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"--tokenizer {path}: not readable as JSON ({error}). Fix or delete it.") from error
    return companions
