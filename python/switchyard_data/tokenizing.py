"""Turns documents into tokens: which tokenizer, and which tokens begin and end a document."""

import dataclasses

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from . import DataError
from .tokenizer_files import TokenizerFiles, told

BYTES = 256  # the alphabet of a byte-level BPE
TRAIN = "train:"
MOST_TRAINED = 1 << 20  # four times the largest vocabulary in use
NONE = "none"
END_OF_DOCUMENT = "<|endoftext|>"  # of a trained tokenizer


@dataclasses.dataclass(frozen=True)
class Training:
    """A tokenizer to train. special: its tokens that no text gives, which have the first ids."""

    vocabulary: int
    bos: str | None
    eos: str | None

    @property
    def special(self):
        return list(dict.fromkeys(token for token in (self.bos, self.eos) if token))


def training(spec, bos, eos):
    """The training that `train:VOCAB` asks for; None if the spec names a file. bos, eos: the options, None if absent."""
    if not spec.startswith(TRAIN):
        return None
    size = spec[len(TRAIN):]
    asked = Training(0, None if bos in (None, NONE) else bos, None if eos == NONE else eos or END_OF_DOCUMENT)
    least = BYTES + len(asked.special)
    is_number = size.isascii() and size.isdecimal() and len(size) <= 20  # Python refuses to read much longer ones
    if not is_number or not least <= int(size) <= MOST_TRAINED:
        raise DataError(f"--tokenizer {spec[:80]}: the vocabulary must be a number from {least} to {MOST_TRAINED}, "
                        "e.g. train:8192.")
    return dataclasses.replace(asked, vocabulary=int(size))


def train(texts, asked):
    """A byte-level BPE of these texts, with its files. Encoding and decoding reproduces any text exactly."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=asked.vocabulary, show_progress=False,
                                  special_tokens=[AddedToken(token, special=True) for token in asked.special],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    files = TokenizerFiles(tokenizer)
    for name, token in (("bos_token", asked.bos), ("eos_token", asked.eos)):
        if token:
            files.declare(name, token)
    return files


@dataclasses.dataclass(frozen=True)
class Frame:
    """The tokens put before and after each document, as (text, id); None is none."""

    bos: tuple | None
    eos: tuple | None

    def around(self, ids):
        return [*([self.bos[1]] if self.bos else []), *ids, *([self.eos[1]] if self.eos else [])]

    def description(self):
        """For meta.json: token and id of each."""
        return {name: edge and dict(zip(("token", "id"), edge)) for name, edge in (("bos", self.bos), ("eos", self.eos))}


def frame(files, bos, eos):
    """The frame that options ask for: None takes the tokenizer's own eos, and its own bos where it puts that before each
    text itself. What was named is declared in the files."""
    own_bos = files.declared("bos_token") if files.begins_with("bos_token") else None
    return Frame(_edge(files, "bos", bos, own_bos), _edge(files, "eos", eos, files.declared("eos_token")))


def _edge(files, name, option, own):
    token = own if option is None else None if option == NONE else option
    if token is None:
        return None
    number = files.tokenizer.token_to_id(token)
    if number is None:
        known = sorted(added.content for added in files.tokenizer.get_added_tokens_decoder().values() if added.special)
        raise DataError(f"--{name} {token}: the tokenizer has no such token. Its special tokens are "
                        f"{', '.join(known) or 'none'}; take one of them, or --{name} none.")
    if option is not None:
        files.declare(f"{name}_token", token)
    return token, number


def encode(tokenizer, texts):
    """The ids of each text, without special tokens around them. On all cores."""
    with told("--tokenizer: it can't encode the inputs"):
        return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
