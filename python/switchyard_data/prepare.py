"""Data preparation: makes corpus.bin, corpus.idx, tokenizer.json and meta.json from the inputs."""

import errno
import hashlib
import json
import os
from pathlib import Path

from . import DataError, scratch_folders, tokenizing
from .indexed import IndexedWriter
from .inputs import Documents, find_files
from .progress import Progress

FORMAT = 1  # version of the written files; part of the fingerprint
BATCH_CHARACTERS = 2 << 20  # encoded at a time, on all cores
# meta.json comes last and marks the others as complete.
OUTPUTS = ("corpus.bin", "corpus.idx", "tokenizer.json", "meta.json")


def prepare(inputs, tokenizer, out, text_key="content", suffixes=(), force=False):
    """Writes the four files to folder `out`, all or none, and returns (meta, whether anything was done)."""
    vocabulary = tokenizing.training_vocabulary(tokenizer)
    given = None if vocabulary else tokenizing.load(tokenizer)
    files = [file for file in find_files(inputs, suffixes) if Path(out).resolve() not in file.path.resolve().parents]
    fingerprint = _fingerprint(files, given.to_str() if given else tokenizer, text_key)
    out = Path(out)
    scratch_folders.remove_stale(out)
    meta = None if force else _up_to_date(out, fingerprint)
    if meta:
        return meta, False
    documents = Documents(files, text_key)
    given = given or _train(documents, vocabulary)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with scratch_folders.Scratch(out) as scratch:
            meta = _write(documents, given, scratch)
            meta["tokenizer"] = tokenizer
            meta["fingerprint"] = fingerprint
            (scratch / "meta.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")
            with scratch_folders.locked(out):  # keeps two runs from mixing their files
                (out / "meta.json").unlink(missing_ok=True)
                for name in OUTPUTS:
                    os.replace(scratch / name, out / name)
    except OSError as error:
        raise DataError(f"--out {out}: can't be written ({error.strerror}). {_remedy(error)}") from error
    return meta, True


def _remedy(error):
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return "Make room, or choose another folder." if full else "Choose another folder."


def _fingerprint(files, tokenizer, text_key):
    state = [FORMAT, tokenizer, text_key, [[str(file.path.resolve()), file.size, file.modified] for file in files]]
    return hashlib.sha256(json.dumps(state).encode("utf-8", "surrogateescape")).hexdigest()


def _up_to_date(out, fingerprint):
    try:
        meta = json.loads((out / "meta.json").read_text(encoding="utf-8"))
        sizes = {name: (out / name).stat().st_size for name in meta["bytes"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return meta if meta.get("fingerprint") == fingerprint and sizes == meta["bytes"] else None


def _train(documents, vocabulary):
    with Progress(f"training a tokenizer of {vocabulary}", documents.total_bytes) as progress:
        def counted():
            for text in documents:
                progress.count([text], documents.consumed)
                yield text
        tokenizer = tokenizing.train(counted(), vocabulary)
    if progress.text_bytes == 0:
        raise _no_documents(documents)
    return tokenizer


def _no_documents(documents):
    return DataError(f"no documents in {len(documents.files)} files ({documents.skipped} are not UTF-8 text). "
                     "Check --input, --suffix and --text-key.")


def _batches(texts):
    batch, size = [], 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write(documents, tokenizer, scratch):
    size = tokenizing.vocabulary_size(tokenizer)
    writer = IndexedWriter(scratch / "corpus.bin", size)
    empty = 0
    with Progress("tokenizing", documents.total_bytes) as progress:
        for batch in _batches(documents):
            with tokenizing.told("--tokenizer: it can't encode the inputs"):
                encodings = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            for encoding in encodings:
                ids = encoding.ids  # every access makes a copy
                progress.tokens += len(ids)
                if ids:
                    writer.add(ids)
                else:
                    empty += 1
            progress.count(batch, documents.consumed)
        writer.close()
    if not writer.lengths:
        raise _no_documents(documents)
    writer.write_index(scratch / "corpus.idx")
    tokenizer.save(str(scratch / "tokenizer.json"))
    return {
        "vocab_size": size,
        "documents": len(writer.lengths),
        "tokens": sum(writer.lengths),
        "longest": max(writer.lengths),
        "dtype": "uint16" if writer.dtype.itemsize == 2 else "int32",
        "text_bytes": progress.text_bytes,
        "empty_documents": empty,
        "skipped_files": documents.skipped,
        "bytes": {name: (scratch / name).stat().st_size for name in OUTPUTS[:3]},
    }
