"""Reads a corpus by the format's definition, independently of the code that wrote it."""

import json
import struct
from pathlib import Path

from tokenizers import Tokenizer


class CorpusReader:
    def __init__(self, folder):
        folder = Path(folder)
        index, self.data = (folder / "corpus.idx").read_bytes(), (folder / "corpus.bin").read_bytes()
        self.meta = json.loads((folder / "meta.json").read_text())
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        assert index[:9] == b"MMIDIDX\x00\x00"
        version, self.code, sequences, marks = struct.unpack_from("<QBQQ", index, 9)
        assert version == 1 and marks == sequences + 1
        self.sizes = struct.unpack_from(f"<{sequences}i", index, 34)
        self.pointers = struct.unpack_from(f"<{sequences}q", index, 34 + 4 * sequences)
        self.marks = struct.unpack_from(f"<{marks}q", index, 34 + 12 * sequences)
        assert len(index) == 34 + 12 * sequences + 8 * marks
        assert self.marks == tuple(range(marks))

    def ids(self, document):
        letter = {8: "H", 4: "i"}[self.code]
        return list(struct.unpack_from(f"<{self.sizes[document]}{letter}", self.data, self.pointers[document]))

    def texts(self):
        """Without the tokens that begin and end a document, which must be there."""
        return [self.tokenizer.decode(self._inside(self.ids(document)), skip_special_tokens=False)
                for document in range(len(self.sizes))]

    def _inside(self, ids):
        for name, place in (("bos", 0), ("eos", -1)):
            if self.meta[name]:
                assert ids.pop(place) == self.meta[name]["id"]
        return ids
