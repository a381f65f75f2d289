"""Data preparation: makes corpus.bin, corpus.idx, the tokenizer's files and meta.json from the inputs."""

import dataclasses
import errno
import hashlib
import json
import os
import time
from pathlib import Path

from . import DataError, DiskError, indexed, scratch_folders, tokenizer_files, tokenizing
from .inputs import Documents, Place, TextRows, find_files
from .progress import Progress

FORMAT = 3  # version of the written files; part of the fingerprint
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
BATCH_CHARACTERS = 2 << 20  # encoded at a time, on all cores
SAVE_SECONDS = 5  # between two states from which an interrupted preparation can go on
META, STATE = "meta.json", "state.json"
# Everything that may lie in a prepared folder. Without the first one nothing there is a corpus, so it comes last.
OUTPUTS = (indexed.IDX, META, indexed.BIN, indexed.MASK, "tokenizer.json", *tokenizer_files.COMPANIONS)


@dataclasses.dataclass(frozen=True)
class Options:
    """Options as on the command line; None is the default in words."""

    input: list
    tokenizer: str
    out: str
    text_key: str | None = None
    suffix: tuple = ()
    bos: str | None = None
    eos: str | None = None
    messages: bool = False
    chat_template: str | None = None
    force: bool = False

    def recorded(self):
        """What decides the content of the files, but for the inputs' content."""
        kept = dataclasses.asdict(self)
        return {name: kept[name] for name in kept if name not in ("out", "force")}


def prepare(options):
    """Writes the files to options.out, all or none, and returns (meta, whether anything was done)."""
    _expect_names(options)
    asked = tokenizing.training(options.tokenizer, options.bos, options.eos)
    given = None if asked else tokenizer_files.load(options.tokenizer)
    template = _chat_template(given, options)
    out = Path(options.out)
    found = find_files(options.input, options.suffix)
    files = [file for file in found if out.resolve() not in file.path.resolve().parents]
    if found and not files:
        raise DataError(f"--input: all {len(found)} files lie in --out {out}, where nothing is read. Choose another "
                        "--out.")
    if not options.force:
        _expect_no_other_work(out, options)
    fingerprint = _fingerprint(files, given, template, options)
    meta = None if options.force else _up_to_date(out, fingerprint)
    if meta:
        scratch_folders.remove_stale(out)
        return meta, False
    try:
        out.mkdir(parents=True, exist_ok=True)
        with scratch_folders.Scratch(
                out, wanted=lambda folder: not options.force and _state(folder, fingerprint),
                kept=lambda folder, error: not isinstance(error, DataError) and _state(folder, fingerprint)) as scratch:
            rows = TextRows(options.text_key)
            if options.messages:
                from .conversations import Conversations
                rows = Conversations(template, given.special_tokens() if given else asked.special_tokens(),
                                     options.text_key)
            meta = _Preparation(Documents(files, rows), options, fingerprint, scratch).run(given, asked, template)
            with scratch_folders.locked(out):  # keeps two runs from mixing their files
                _publish(scratch, out)
    except OSError as error:
        kind = DiskError if error.errno in (*_FULL, errno.EIO) else DataError
        raise kind(f"--out {out}: can't be written ({error.strerror}). {_remedy(error)}") from error
    return meta, True


def _expect_names(options):
    """An empty name usually comes from an unset shell variable."""
    for name, values in (("--input", options.input), ("--out", [options.out])):
        if "" in values:
            raise DataError(f"{name} is empty. Name a folder.")


def _expect_no_other_work(out, options):
    """Nothing is replaced that this command would not make again from the inputs that it has."""
    if os.path.exists(out / "config.json"):
        raise DataError(f"--out {out}: it holds a model (config.json), whose tokenizer would be replaced. Choose "
                        "another folder, or replace it with --force.")
    before = _read_object(out / META).get("options")
    inputs = before.get("input") if isinstance(before, dict) else None
    if isinstance(inputs, list) and not (
            {os.path.realpath(str(name)) for name in inputs} <= {os.path.realpath(name) for name in options.input}):
        raise DataError(f"--out {out}: it holds a corpus of other inputs ({', '.join(map(str, inputs))}). Choose "
                        "another folder, or replace it with --force.")


def can_go_on(out):
    """Whether an interrupted preparation left something to go on from."""
    return any(Path(out).glob(f"{scratch_folders.PREFIX}*/{STATE}"))


def _remedy(error):
    return "Make room, or choose another folder." if error.errno in _FULL else "Choose another folder."


def _chat_template(given, options):
    """The template of --chat-template, else the tokenizer's; None without --messages."""
    if not options.messages:
        if options.chat_template:
            raise DataError("--chat-template is for --messages. Give both, or neither.")
        return None
    if options.chat_template:
        try:
            return Path(options.chat_template).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise DataError(f"--chat-template {options.chat_template}: can't be read ({error}). Check it.") from error
    template = given.chat_template() if given else None
    if template is None:
        raise DataError(f"--tokenizer {options.tokenizer}: it has no chat template, which --messages needs. Name a "
                        "file with one (Jinja) with --chat-template.")
    return template


def _fingerprint(files, given, template, options):
    content = [given.tokenizer.to_str(), *(f"{name} {given.companions[name]}" for name in sorted(given.companions))
               ] if given else []
    state = [FORMAT, content, template, options.recorded() | {"input": []},
             [[str(file.path.resolve()), file.size, file.modified] for file in files]]
    return hashlib.sha256(json.dumps(state).encode("utf-8", "surrogateescape")).hexdigest()


def _read_object(path):
    """The JSON object of a file; empty if it isn't there, or no such file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _has(folder, sizes, exactly=True):
    try:
        found = {name: (folder / name).stat().st_size for name in sizes}
        return all(found[name] == sizes[name] if exactly else found[name] >= sizes[name] for name in sizes)
    except (OSError, TypeError):
        return False


def _up_to_date(out, fingerprint):
    meta = _read_object(out / META)
    whole = meta.get("fingerprint") == fingerprint and _has(out, meta["bytes"] | {indexed.IDX: meta["index_bytes"]})
    return meta if whole else None


def _state(folder, fingerprint):
    """The state of a preparation that can go on in the folder; None if there is none."""
    state = _read_object(folder / STATE)
    return state if state.get("fingerprint") == fingerprint and _has(folder, state["bytes"], exactly=False) else None


def _publish(scratch, out):
    for name in OUTPUTS:
        (out / name).unlink(missing_ok=True)
    for name in reversed(OUTPUTS):
        if (scratch / name).exists():
            os.replace(scratch / name, out / name)


def _no_documents(documents, messages):
    if messages:
        return DataError(f"no conversation in {len(documents.files)} files has an answer (a message with role "
                         "assistant). Check --input.")
    return DataError(f"no documents in {len(documents.files)} files ({documents.place.skipped} are not UTF-8 text). "
                     "Check --input, --suffix and --text-key.")


def _batches(documents):
    batch, size = [], 0
    for document in documents:
        batch.append(document)
        size += len(document.text)
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _Preparation:
    """Fills a scratch folder with the files, from the start or from the state that is there."""

    def __init__(self, documents, options, fingerprint, scratch):
        self.documents, self.options, self.scratch = documents, options, scratch
        self.state = _state(scratch, fingerprint) or {"fingerprint": fingerprint, "bytes": {}, "place": {}, "empty": 0,
                                                      "text_bytes": 0, "labels": 0, "largest_id": 0}
        self.saved = time.monotonic()

    def run(self, given, asked, template):
        files = given or self._trained(asked)
        bos, eos = self.options.bos, self.options.eos
        if template is not None:  # which has tokens of its own around each message
            bos, eos = bos or tokenizing.NONE, eos or tokenizing.NONE
            if template != files.chat_template():
                files.companions[tokenizer_files.CHAT_TEMPLATE] = template.encode()
        frame = tokenizing.frame(files, bos, eos)
        names = files.save(self.scratch)
        writer = self._tokenize(files.tokenizer, frame)
        lengths = writer.lengths
        masks = [indexed.MASK] if self.options.messages else []
        sizes = {name: (self.scratch / name).stat().st_size for name in (indexed.BIN, *masks, *names)}
        meta = {
            "vocab_size": tokenizer_files.vocabulary_size(files.tokenizer),
            "largest_id": self.state["largest_id"],
            "documents": len(lengths),
            "tokens": sum(lengths),
            "longest": max(lengths),
            **({"labels": self.state["labels"]} if masks else {}),
            "dtype": "uint16" if writer.dtype.itemsize == 2 else "int32",
            **frame.description(),
            "text_bytes": self.state["text_bytes"],
            "empty_documents": self.state["empty"],
            "skipped_files": self.documents.place.skipped,
            "tokenizer_sha256": hashlib.sha256((self.scratch / "tokenizer.json").read_bytes()).hexdigest(),
            "options": self.options.recorded(),
            "bytes": sizes,
            "index_bytes": (self.scratch / indexed.IDX).stat().st_size,
            "fingerprint": self.state["fingerprint"],
        }
        (self.scratch / META).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
        return meta

    def _trained(self, asked):
        if "tokenizer.json" in self.state["bytes"]:
            return tokenizer_files.load(self.scratch)
        with Progress(f"training a tokenizer of {asked.vocabulary}") as progress:  # most is done after reading
            def counted():
                for document in self.documents:
                    progress.count([document.text], self.documents.consumed)
                    yield document.text
            files = tokenizing.train(counted(), asked)
        if progress.text_bytes == 0:
            raise _no_documents(self.documents, self.options.messages)
        self._save({name: (self.scratch / name).stat().st_size for name in files.save(self.scratch)})
        return files

    def _tokenize(self, tokenizer, frame):
        writer = indexed.IndexedWriter(self.scratch, tokenizer_files.vocabulary_size(tokenizer), self.state["bytes"],
                                       masked=self.options.messages)
        with Progress("tokenizing", self.documents.total_bytes) as progress:
            documents = self.documents.after(Place(**self.state["place"]))
            progress.go_on(documents=len(writer.lengths) + self.state["empty"], text_bytes=self.state["text_bytes"],
                           tokens=sum(writer.lengths), consumed=self.documents.consumed)
            for batch in _batches(documents):
                for encoded in tokenizing.encode(tokenizer, batch):
                    if encoded.ids and (encoded.counts is None or 1 in encoded.counts):
                        framed = frame.around(encoded)
                        writer.add(framed.ids, framed.counts)
                        progress.tokens += len(framed.ids)
                        self.state["largest_id"] = max(self.state["largest_id"], max(framed.ids))
                        self.state["labels"] += sum(framed.counts or b"")
                    else:
                        self.state["empty"] += 1
                progress.count([document.text for document in batch], self.documents.consumed)
                self.state |= {"place": dataclasses.asdict(self.documents.place), "text_bytes": progress.text_bytes}
                if time.monotonic() - self.saved >= SAVE_SECONDS:
                    self._save(writer.save())
        if not writer.lengths:
            raise _no_documents(self.documents, self.options.messages)
        writer.finish()
        return writer

    def _save(self, sizes):
        """sizes: of files that are whole up to there."""
        self.state["bytes"] |= sizes
        (self.scratch / "new-state").write_text(json.dumps(self.state), encoding="utf-8")
        os.replace(self.scratch / "new-state", self.scratch / STATE)
        self.saved = time.monotonic()
