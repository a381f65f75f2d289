"""Writes Megatron's indexed dataset: NAME.bin holds the tokens, NAME.idx the position of each document."""

import struct

import numpy

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
UINT16, INT32 = 8, 4  # codes of the data types
UINT16_VOCABULARY = 65500  # below this, tokens take two bytes, as in Megatron


def token_type(vocabulary):
    """numpy type and code of tokens for a vocabulary size."""
    return (numpy.dtype("<u2"), UINT16) if vocabulary < UINT16_VOCABULARY else (numpy.dtype("<i4"), INT32)


class IndexedWriter:
    """One sequence per document. Lengths are kept in memory, tokens are not."""

    def __init__(self, bin_path, vocabulary):
        self.dtype, self.code = token_type(vocabulary)
        self.lengths = []
        self._file = open(bin_path, "wb")

    def add(self, ids):
        self._file.write(numpy.asarray(ids, dtype=self.dtype).tobytes())
        self.lengths.append(len(ids))

    def close(self):
        self._file.close()

    def write_index(self, idx_path):
        sizes = numpy.asarray(self.lengths, dtype="<i4")
        ends = numpy.cumsum(sizes, dtype="<i8") * self.dtype.itemsize
        pointers = numpy.concatenate([numpy.zeros(1, "<i8"), ends])[:len(sizes)]
        marks = numpy.arange(len(sizes) + 1, dtype="<i8")
        with open(idx_path, "wb") as file:
            file.write(MAGIC + struct.pack("<QBQQ", VERSION, self.code, len(sizes), len(marks)))
            for array in (sizes, pointers, marks):
                file.write(array.tobytes())
