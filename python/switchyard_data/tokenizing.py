"""Tokenizers: a Hugging Face tokenizer.json, or a byte-level BPE trained on the inputs."""

import contextlib
import os
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from . import DataError

BYTES = 256  # the alphabet of a byte-level BPE
TRAIN = "train:"
MOST_TRAINED = 1 << 20  # four times the largest vocabulary in use
MOST_TOKENS = 1 << 31  # token files hold signed 32-bit integers


def training_vocabulary(spec):
    """VOCAB of train:VOCAB; None if the spec names a file."""
    if not spec.startswith(TRAIN):
        return None
    size = spec[len(TRAIN):]
    is_number = size.isascii() and size.isdecimal() and len(size) <= 20  # Python refuses to read much longer ones
    if not is_number or not BYTES <= int(size) <= MOST_TRAINED:
        raise DataError(f"--tokenizer {spec[:80]}: the vocabulary must be a number from {BYTES} to {MOST_TRAINED}, "
                        "e.g. train:8192.")
    return int(size)


def load(path):
    """The tokenizer of a file, without padding and truncation, so that documents stay complete."""
    if os.path.isdir(path):  # unlike Path.is_dir, it accepts impossible names
        path = Path(path, "tokenizer.json")
    if not os.path.isfile(path):
        raise DataError(f"--tokenizer {path}: no such file. Give a Hugging Face tokenizer.json, or train:8192 to train "
                        "one on the inputs.")
    with told(f"--tokenizer {path}: not a Hugging Face tokenizer.json"):
        tokenizer = Tokenizer.from_str(Path(path).read_text(encoding="utf-8"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        size = vocabulary_size(tokenizer)
    if not 1 <= size <= MOST_TOKENS:
        raise DataError(f"--tokenizer {path}: its ids go up to {size - 1}; token files hold ids below {MOST_TOKENS}. "
                        "Take a tokenizer with a smaller vocabulary."
                        if size else f"--tokenizer {path}: its vocabulary is empty. Take another, or train:8192 to "
                                     "train one on the inputs.")
    return tokenizer


@contextlib.contextmanager
def told(what):
    """Turns the library's errors into DataErrors that begin with `what`. Its panics are not Exceptions."""
    try:
        yield
    except (DataError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise DataError(f"{what} ({error}).") from error


def train(texts, vocabulary):
    """A byte-level BPE of these texts. Encoding and decoding reproduces any text exactly."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def vocabulary_size(tokenizer):
    """One above the largest id, because added tokens may leave gaps."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
