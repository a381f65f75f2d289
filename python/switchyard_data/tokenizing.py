"""Tokenizers: a Hugging Face tokenizer.json, or a byte-level BPE trained on the inputs."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from . import DataError

BYTES = 256  # the alphabet of a byte-level BPE
TRAIN = "train:"


def training_vocabulary(spec):
    """VOCAB of train:VOCAB; None if the spec names a file."""
    if not spec.startswith(TRAIN):
        return None
    size = spec[len(TRAIN):]
    if not size.isdigit() or int(size) < BYTES:
        raise DataError(f"--tokenizer {spec}: the vocabulary must be a number of at least {BYTES}, e.g. train:8192.")
    return int(size)


def load(path):
    """The tokenizer of a file, without its padding and truncation: documents are kept whole."""
    if Path(path).is_dir():
        path = Path(path, "tokenizer.json")
    if not Path(path).is_file():
        raise DataError(f"--tokenizer {path}: no such file. Give a Hugging Face tokenizer.json, or train:8192 to train one on the inputs.")
    try:
        tokenizer = Tokenizer.from_str(Path(path).read_text(encoding="utf-8"))
    except Exception as error:  # the library raises nothing narrower
        raise DataError(f"--tokenizer {path}: not a Hugging Face tokenizer.json ({error}).") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def train(texts, vocabulary):
    """A byte-level BPE of these texts: any text survives encoding and decoding byte for byte."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def vocabulary_size(tokenizer):
    """One above the largest id: added tokens may leave gaps."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
