"""Writes the definitions of Python source files as documents: one JSON line {"text": ...} for each function, class and
assignment at the top level of a file that has at least MIN_CHARACTERS.

    python demo/definitions.py FOLDER OUT.jsonl
"""

import ast
import json
import sys
from pathlib import Path

MIN_CHARACTERS = 200
KINDS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign)


def definitions(source):
    """The texts of a file's definitions, in their order; none if it is no Python of this version."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    lines = source.splitlines(keepends=True)
    texts = ("".join(lines[node.lineno - 1:node.end_lineno]) for node in tree.body if isinstance(node, KINDS))
    return [text for text in texts if len(text) >= MIN_CHARACTERS]


def write(folder, out):
    """Writes those of all files below the folder but installed packages; returns the number of documents."""
    documents = 0
    with open(out, "w", encoding="utf-8") as lines:
        for path in sorted(Path(folder).rglob("*.py")):
            if "site-packages" in path.parts:
                continue
            try:
                source = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            for text in definitions(source):
                lines.write(json.dumps({"text": text}) + "\n")
                documents += 1
    return documents


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python demo/definitions.py FOLDER OUT.jsonl")
    print(f"{write(sys.argv[1], sys.argv[2])} documents")
