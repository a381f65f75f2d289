"""Writes Megatron's indexed dataset: NAME.bin holds the tokens, NAME.idx the position of each document."""

import array
import os
import struct

import numpy

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
BIN, IDX, MASK, LENGTHS = "corpus.bin", "corpus.idx", "corpus.mask", "lengths"
UINT16, INT32 = 8, 4  # codes of the data types
UINT16_VOCABULARY = 65500  # below this, tokens take two bytes, as in Megatron


def token_type(vocabulary):
    """numpy type and code of tokens for a vocabulary size."""
    return (numpy.dtype("<u2"), UINT16) if vocabulary < UINT16_VOCABULARY else (numpy.dtype("<i4"), INT32)


class GrowingFile:
    """A file that is only appended to. A new one goes on after the first `kept` bytes of what was there."""

    def __init__(self, path, kept=0):
        self._file = open(path, "ab")
        self._file.truncate(kept)
        self.size = kept

    def append(self, data):
        self._file.write(data)
        self.size += len(data)

    def save(self):
        """Returns when everything is on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self):
        self._file.close()


class IndexedWriter:
    """One sequence per document. Lengths are kept in memory, four bytes each, tokens are not.

    folder  gets corpus.bin and, at the end, corpus.idx; meanwhile `lengths`, from which another writer can go on
    masked  whether it also gets corpus.mask: for each token a byte, 1 if it counts in the loss as a label, else 0
    kept    what save() of an earlier writer in this folder returned; this one goes on from there
    """

    def __init__(self, folder, vocabulary, kept=None, masked=False):
        self.folder = folder
        self.dtype, self.code = token_type(vocabulary)
        self._files = {name: GrowingFile(folder / name, (kept or {}).get(name, 0))
                       for name in (LENGTHS, BIN, *([MASK] if masked else []))}
        self.lengths = array.array("i", (folder / LENGTHS).read_bytes())

    def add(self, ids, counts=None):
        """counts: for each id whether it counts, as bytes; of a writer that is masked."""
        if counts is not None:
            self._files[MASK].append(counts)
        self._files[BIN].append(numpy.asarray(ids, dtype=self.dtype).tobytes())
        self.lengths.append(len(ids))

    def save(self):
        """What was added so far outlives the process from now on. Returns sizes of the files."""
        lengths = self._files[LENGTHS]
        lengths.append(self.lengths[lengths.size // self.lengths.itemsize:].tobytes())
        for file in self._files.values():
            file.save()
        return {name: file.size for name, file in self._files.items()}

    def finish(self):
        for file in self._files.values():
            file.close()
        self._write_index()
        (self.folder / LENGTHS).unlink()

    def _write_index(self):
        sizes = numpy.asarray(self.lengths, dtype="<i4")
        ends = numpy.cumsum(sizes, dtype="<i8") * self.dtype.itemsize
        pointers = numpy.concatenate([numpy.zeros(1, "<i8"), ends])[:len(sizes)]
        marks = numpy.arange(len(sizes) + 1, dtype="<i8")
        with open(self.folder / IDX, "wb") as file:
            file.write(MAGIC + struct.pack("<QBQQ", VERSION, self.code, len(sizes), len(marks)))
            for values in (sizes, pointers, marks):
                file.write(values.tobytes())
