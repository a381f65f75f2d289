"""Reads documents from folders of text files, single files, .jsonl (.gz, .zst) and .parquet."""

import dataclasses
import io
import json
import os
import zlib
from pathlib import Path

import pyarrow
import pyarrow.parquet

from . import DataError

ROW_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
SKIPPED_FOLDERS = ("__pycache__", "site-packages", "dist-packages", "node_modules")
PARQUET_ROWS = 1024  # read at a time


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
    files = []
    for name in inputs:
        path = Path(name)
        try:
            if path.is_dir():
                files.extend(_files_below(path, tuple(suffixes)))
            elif path.exists():
                files.append(_file(path, named=True))
            else:
                raise DataError(f"{name}: no such file or folder. Check --input.")
        except OSError as error:
            raise _unreadable(error.filename or name, error) from error
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


class Documents:
    """Iterates over the texts of files; may be iterated again. Counts as it goes.

    skipped   files of folders that are not UTF-8 text
    consumed  bytes of the files read so far
    """

    def __init__(self, files, text_key):
        self.files, self.text_key = files, text_key
        self.total_bytes = sum(file.size for file in files)
        self.skipped = self.consumed = 0

    def __iter__(self):
        self.skipped = self.consumed = 0
        before = 0
        for file in self.files:
            reader = self._parquet if file.path.suffix == ".parquet" else self._lines if file.is_rows() else self._text
            for text, position in reader(file):
                self.consumed = before + min(position, file.size)
                yield text
            before += file.size
            self.consumed = before

    def _text(self, file):
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
            self.skipped += 1
            return
        yield text, file.size

    def _lines(self, file):
        try:
            with open(file.path, "rb") as raw:
                stream = io.BufferedReader(_uncompressed(raw, file.path.name), 1 << 20)
                for number, line in enumerate(stream, 1):
                    if line.strip():
                        yield self._row_text(line, f"{file.path}:{number}"), raw.tell()
        except (OSError, EOFError, zlib.error) as error:  # pyarrow raises OSError for damaged streams
            if file.path.suffix == ".jsonl":
                raise _unreadable(file.path, error) from error
            raise DataError(f"{file.path}: truncated or damaged ({error}). Fetch it again.") from error

    def _row_text(self, line, where):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: not valid JSON ({error}). Fix or delete the line.") from error
        if not isinstance(row, dict):
            raise DataError(f"{where}: not a JSON object. Each line must be one, with the text under a key.")
        return _text_of(row.get(self.text_key), self.text_key, row.keys(), where)

    def _parquet(self, file):
        try:
            table = pyarrow.parquet.ParquetFile(file.path)
        except (pyarrow.ArrowException, OSError) as error:
            raise DataError(f"{file.path}: truncated or not a parquet file ({error}). Fetch it again.") from error
        names = table.schema_arrow.names
        if self.text_key not in names:
            raise _missing_key(self.text_key, names, file.path)
        rows, total = 0, max(table.metadata.num_rows, 1)
        try:
            for batch in table.iter_batches(PARQUET_ROWS, columns=[self.text_key]):
                for text in batch.column(0).to_pylist():
                    rows += 1
                    yield _text_of(text, self.text_key, names, f"{file.path}: row {rows}"), file.size * rows // total
        except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:  # or text that is not UTF-8
            raise DataError(f"{file.path}: damaged after row {rows} ({error}). Fetch it again.") from error


def _uncompressed(raw, name):
    codec = {".gz": "gzip", ".zst": "zstd"}.get(Path(name).suffix)
    return pyarrow.CompressedInputStream(raw, codec) if codec else raw


def _text_of(text, key, keys, where):
    if text is None and key in keys:
        return ""
    if text is None:
        raise _missing_key(key, keys, where)
    if not isinstance(text, str):
        raise DataError(f"{where}: \"{key}\" is not text but {type(text).__name__}. Name the key of the text with "
                        "--text-key.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(f"{where}: \"{key}\" is not valid Unicode ({error.reason}). Fix or delete the row.") from error
    return text


def _missing_key(key, keys, where):
    seen = ", ".join(f'"{name}"' for name in keys) or "none"
    return DataError(f"{where}: no key \"{key}\"; its keys are {seen}. Name the one of the text with --text-key.")


def _unreadable(path, error):
    return DataError(f"{path}: can't be read ({error.strerror or error}). Check it, or leave it out of --input.")
