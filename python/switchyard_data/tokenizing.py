"""Turns documents into tokens: which tokenizer, and which tokens begin and end a document."""

import dataclasses

import numpy
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from . import DataError
from .tokenizer_files import TokenizerFiles, told

BYTES = 256  # the alphabet of a byte-level BPE
TRAIN = "train:"
MOST_TRAINED = 1 << 20  # four times the largest vocabulary in use
NONE = "none"
END_OF_DOCUMENT = "<|endoftext|>"  # token of a trained tokenizer


@dataclasses.dataclass(frozen=True)
class Training:
    """A tokenizer to train. special: its tokens that no text gives, which have the first ids."""

    vocabulary: int
    bos: str | None
    eos: str | None

    def special_tokens(self):
        """By the names under which they are declared."""
        named = {"bos_token": self.bos, "eos_token": self.eos}
        return {name: token for name, token in named.items() if token}

    @property
    def special(self):
        return list(dict.fromkeys(self.special_tokens().values()))


def training(spec, bos, eos):
    """The training that `train:VOCAB` asks for; None if the spec names a file. bos, eos: options, None if absent."""
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
    for name, token in asked.special_tokens().items():
        files.declare(name, token)
    return files


@dataclasses.dataclass(frozen=True)
class Encoded:
    """ids of a document; counts: for each whether it counts in the loss, 1 or 0, as bytes; None: all do. answered:
    whether it ends with an answer, so that a token after it counts as well."""

    ids: list
    counts: bytes | None = None
    answered: bool = False


@dataclasses.dataclass(frozen=True)
class Frame:
    """The tokens put before and after each document, as (text, id); None is none."""

    bos: tuple | None
    eos: tuple | None

    def around(self, encoded):
        before = [self.bos[1]] if self.bos else []
        after = [self.eos[1]] if self.eos else []
        if encoded.counts is None:
            return Encoded([*before, *encoded.ids, *after])
        return Encoded([*before, *encoded.ids, *after],
                       bytes(len(before)) + encoded.counts + bytes([encoded.answered] * len(after)))

    def description(self):
        """For meta.json: token and id of each."""
        return {name: edge and {"token": edge[0], "id": edge[1]}
                for name, edge in (("bos", self.bos), ("eos", self.eos))}


def frame(files, bos, eos):
    """The frame that options ask for: None takes the tokenizer's own eos, and its own bos where it puts that before
    each text itself. What was named is declared in the files."""
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


def encode(tokenizer, documents):
    """Each document as Encoded, without special tokens around it. On all cores."""
    texts = [document.text for document in documents]
    with told("--tokenizer: it can't encode the inputs"):
        if all(document.answers is None for document in documents):
            return [Encoded(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        encodings = tokenizer.encode_batch(texts, add_special_tokens=False)  # the fast one leaves out offsets
    return [Encoded(encoding.ids, _overlaps(encoding.offsets, document.answers), document.ends_with_answer())
            for encoding, document in zip(encodings, documents)]


def _overlaps(offsets, ranges):
    """For each range of characters in `offsets` whether it has one in common with one of `ranges`, as bytes."""
    if not offsets or not ranges:
        return bytes(len(offsets))
    begin, end = numpy.asarray(offsets).T
    first, last = numpy.asarray(ranges).T
    candidate = numpy.searchsorted(last, begin, side="right")  # the first that ends after the token begins
    inside = candidate < len(last)
    inside &= first[numpy.minimum(candidate, len(last) - 1)] < end
    return (inside & (begin < end)).astype(numpy.uint8).tobytes()
