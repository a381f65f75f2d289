"""Reads documents from folders of text files, single files, files of JSON lines and .parquet."""

import dataclasses
import io
import itertools
import json
import os
import re
import typing
import zlib
from pathlib import Path

import pyarrow
import pyarrow.parquet

from . import DataError

# Published data in .json.gz and .json.zst has a JSON object in each line.
ROW_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".json.gz", ".json.zst", ".parquet")
TABLE_SUFFIXES = (".csv", ".tsv")
SKIPPED_FOLDERS = ("__pycache__", "site-packages", "dist-packages", "node_modules")
PARQUET_ROWS = 1024  # read at a time
TEXT_KEYS = ("text", "content")  # where the text of a row is looked for, unless a key is given
MESSAGES_KEYS = ("messages",)  # where the messages of a conversation are looked for


@dataclasses.dataclass(frozen=True)
class File:
    path: Path
    named: bool  # named on the command line, so it must be readable as text
    size: int
    modified: int  # nanoseconds

    def is_rows(self):
        return self.path.name.endswith(ROW_SUFFIXES)


def find_files(inputs, suffixes=()):
    """All files to read, those of a folder sorted by path. Skips hidden files and folders, and installed packages.

    suffixes  if any, only files with one of these endings are taken from folders
    """
    files, given = [], {}  # given: by real path, the file and the number of its input
    for number, name in enumerate(inputs):
        path = Path(name)
        try:
            if path.is_dir():
                found = list(_files_below(path, tuple(suffixes)))
            elif path.is_char_device() or path.is_block_device():
                raise DataError(f"--input {name}: this is a device, which may never end. Name a file or folder.")
            elif path.exists():
                found = [_file(path, named=True)]
            else:
                raise DataError(f"{name}: no such file or folder. Check --input.")
        except OSError as error:
            raise _unreadable(error.filename or name, error) from error
        for file in found:
            first, other = given.setdefault(os.path.realpath(file.path), (file.path, number))
            if other != number:  # links inside a folder are its own affair
                raise DataError(f"--input: {file.path} is given twice, also as {first}. Its documents would be there "
                                "twice; name it once.")
        files.extend(found)
    return files


def _files_below(folder, suffixes):
    for base, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(f for f in folders if f not in SKIPPED_FOLDERS and not f.startswith("."))
        for name in sorted(names):
            path = Path(base, name)
            if not name.startswith(".") and path.is_file() and (not suffixes or name.endswith(suffixes)):
                yield _file(path, named=False)


def _refuse(error):
    raise error  # os.walk would skip the folder


def _file(path, named):
    status = path.stat()
    return File(path, named, status.st_size, status.st_mtime_ns)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where reading stands: documents taken from the file with this number; all files before it are done.

    skipped  files of folders, up to there, that are not UTF-8 text
    """

    file: int = 0
    documents: int = 0
    skipped: int = 0


class Document(typing.NamedTuple):
    """answers: the parts of the text that count in the loss, as ranges of characters in rising order; None: all."""

    text: str
    answers: list | None = None

    def ends_with_answer(self):
        return bool(self.answers) and not self.text[self.answers[-1][1]:].strip()


class TextRows:
    """Reads rows with a text under a key: the given one, or the first of TEXT_KEYS that there is."""

    reads_files = True  # a file that has no rows is a text as well

    def __init__(self, key=None):
        self.keys = (key,) if key else TEXT_KEYS

    def columns(self, key, names):
        return [key]

    def document(self, row, key, where):
        return Document(_text_of(row[key], key, where))


class Documents:
    """Iterates over the documents of files; may be iterated again. Counts as it goes.

    rows      how rows are read
    place     after the last document
    consumed  bytes of the files read so far
    """

    def __init__(self, files, rows):
        self.files, self.rows = files, rows
        self.total_bytes = sum(file.size for file in files)
        self.place, self.consumed = Place(), 0

    def __iter__(self):
        return self.after(Place())

    def after(self, place):
        """The documents that follow a place where an earlier iteration stood."""
        self.consumed = sum(file.size for file in self.files[:place.file])
        self.place = place
        return self._read(place, self.consumed)

    def _read(self, place, before):
        for number in range(place.file, len(self.files)):
            file = self.files[number]
            done = place.documents if number == place.file else 0
            reader = self._parquet if file.path.suffix == ".parquet" else self._lines if file.is_rows() else self._text
            for document, position in reader(file, done):
                self.place = dataclasses.replace(self.place, documents=self.place.documents + 1)
                self.consumed = before + min(position, file.size)
                yield document
            before += file.size
            self.consumed = before
            self.place = Place(number + 1, 0, self.place.skipped)

    # Readers yield the documents of a file after the first `done`, with the position in it, in bytes.

    def _text(self, file, done):
        if done:
            return
        if not self.rows.reads_files:
            raise DataError(f"{file.path}: no file with rows. --messages reads {', '.join(ROW_SUFFIXES)}; leave others "
                            "out with --suffix.")
        try:
            data = file.path.read_bytes()
        except OSError as error:
            raise _unreadable(file.path, error) from error
        try:
            if b"\0" in data:
                raise ValueError("it holds zero bytes")
            text = data.decode("utf-8")
        except ValueError as error:
            if file.named:
                remedy = "Convert it, or leave it out of --input."
                raise DataError(f"{file.path}: not UTF-8 text ({error}). {remedy}") from error
            self.place = dataclasses.replace(self.place, skipped=self.place.skipped + 1)
            return
        self._refuse_rows(file, text)
        yield Document(text), file.size

    def _refuse_rows(self, file, text):
        """Rows in a file whose name doesn't say so: their keys and braces would be part of the text. A single object or
        a table in a folder may well be a text, as in a corpus of programs."""
        if (file.named and file.path.name.lower().endswith(TABLE_SUFFIXES)) or self._like_rows(file, text):
            raise DataError(f"{file.path}: it holds rows, but is not one of {', '.join(ROW_SUFFIXES)}, from which they "
                            "are read. Write one JSON object per line, and let the file's name end in .jsonl.")

    def _like_rows(self, file, text):
        if not text.startswith(("{", "[")):
            return False
        if file.named and text[0] == "[":
            rows = _json_of(text) or []
        else:
            rows = [_json_of(line.group()) for line in itertools.islice(re.finditer(r"\S.*", text), 2)]
        if not all(isinstance(row, dict) for row in rows):
            return False
        if file.named and len(rows) > 1 and file.path.suffix == ".json":
            return True  # whatever their keys
        return len(rows) > (0 if file.named else 1) and all(
            any(isinstance(row.get(key), str) for key in self.rows.keys) for row in rows)

    def _lines(self, file, done):
        try:
            if file.size == 0 and file.path.suffix != ".jsonl":
                raise EOFError("it is empty")
            with open(file.path, "rb") as raw:
                stream = io.BufferedReader(_uncompressed(raw, file.path.name), 1 << 20)
                for number, line in enumerate(stream, 1):
                    if not line.strip():
                        continue
                    if done > 0:
                        done -= 1
                    else:
                        yield self._row(line, f"{file.path}:{number}"), raw.tell()
        except (OSError, EOFError, zlib.error) as error:  # pyarrow raises OSError for damaged streams
            if file.path.suffix == ".jsonl":
                raise _unreadable(file.path, error) from error
            raise DataError(f"{file.path}: truncated or damaged ({error}). Fetch it again.") from error

    def _row(self, line, where):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: not valid JSON ({error}). Fix or delete the line.") from error
        if not isinstance(row, dict):
            raise DataError(f"{where}: not a JSON object. Each line must be one, with the text under a key.")
        key = self._key_among(row.keys(), where)
        return self.rows.document(row, key, where)

    def _key_among(self, names, where):
        for key in self.rows.keys:
            if key in names:
                return key
        sought = " or ".join(f'"{key}"' for key in self.rows.keys)
        seen = ", ".join(f'"{name}"' for name in names) or "none"
        conversations = self.rows.keys != MESSAGES_KEYS and any(key in names for key in MESSAGES_KEYS)
        remedy = "Prepare conversations with --messages" if conversations else "Name the right one with --text-key"
        raise DataError(f"{where}: no key {sought}; its keys are {seen}. {remedy}.")

    def _parquet(self, file, done):
        try:
            # Opened here: from a path, a name that is no Unicode, or looks like an address, would be refused.
            table = pyarrow.parquet.ParquetFile(pyarrow.OSFile(os.fsencode(file.path)), page_checksum_verification=True)
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(f"{file.path}: truncated or not a parquet file ({error}). Fetch it again.") from error
        key = self._key_among(table.schema_arrow.names, file.path)
        rows, groups = 0, list(range(table.metadata.num_row_groups))
        while groups and rows + table.metadata.row_group(groups[0]).num_rows <= done:
            rows += table.metadata.row_group(groups.pop(0)).num_rows
        try:
            columns = self.rows.columns(key, table.schema_arrow.names)
            for batch in table.iter_batches(PARQUET_ROWS, row_groups=groups, columns=columns):
                for row in batch.to_pylist():
                    rows += 1
                    if rows > done:
                        yield self.rows.document(row, key, f"{file.path}: row {rows}"), (
                            file.size * rows // table.metadata.num_rows)
        except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:  # or text that is not UTF-8
            raise DataError(f"{file.path}: damaged after row {rows} ({error}). Fetch it again.") from error


def _json_of(text):
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _uncompressed(raw, name):
    codec = {".gz": "gzip", ".zst": "zstd"}.get(Path(name).suffix)
    return pyarrow.CompressedInputStream(raw, codec) if codec else raw


def _text_of(text, key, where):
    if text is None:
        return ""
    if not isinstance(text, str):
        raise DataError(f"{where}: \"{key}\" is not text but {type(text).__name__}. Name the key of the text with "
                        "--text-key.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: \"{key}\" is not valid Unicode ({error.reason}). Fix or delete the row.") from error
    return text


def _unreadable(path, error):
    return DataError(f"{path}: can't be read ({error.strerror or error}). Check it, or leave it out of --input.")
