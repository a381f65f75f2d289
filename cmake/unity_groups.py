#!/usr/bin/env python3
"""unity_groups.py MOST FILE...: prints groups of at most MOST files that can be compiled as one.

Each group is a line, its files are separated by ";". Files may give their private helpers the same simple names: two
files of which one declares a private name that the other declares too, or sees in a header, are in different groups.
Names are read from lines that start in the first column, as clang-format leaves them.
"""
import collections
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
DECLARATION = re.compile(
    r"^(?!namespace\b|using namespace\b|using [\w:]+;|(?:class|struct|enum)\b[\w: ]*;|template\b"
    r"|TEST|TYPED_TEST|INSTANTIATE)"
    r"(?:(?:struct|class|enum class|enum|union) (?P<type>\w+)|using (?P<alias>\w+) =|MATCHER\w*\((?P<matcher>\w+)"
    r"|[A-Za-z\[][^\n(={;]*?(?:\([^\n()]*\)[^\n(={;]*?)?[ *&>](?P<value>\w+)(?:\(|\{| = |;|\[))", re.MULTILINE)
VARIABLES = re.compile(r"^(?:const|constexpr|inline|static)\b[^\n]*;", re.MULTILINE)  # several in one declaration
FURTHER = re.compile(r", (\w+)(?:\{| = |;)")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
PRIVATE = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)

Names = frozenset[tuple[str, pathlib.Path]]  # each with the file that declares it


def declared(text: str, path: pathlib.Path) -> Names:
    first = {match[match.lastgroup] for match in DECLARATION.finditer(text)}
    return frozenset((name, path) for name in first.union(*map(FURTHER.findall, VARIABLES.findall(text))))


@functools.cache
def names(path: pathlib.Path) -> tuple[Names, Names]:
    """The private names of a file, with those of the test headers beside it, and the names that other headers show."""
    text = path.read_text()
    private = declared("\n".join(PRIVATE.findall(text)), path)
    shown = declared(text, path) if path.suffix == ".hpp" else frozenset()
    for header in INCLUDE.findall(text):
        found = next((file for file in ((path.parent / header).resolve(), SOURCE / header) if file.is_file()), None)
        if found:
            more_private, more_shown = names(found)
            private, shown = private | more_private, shown | more_shown
    if path.suffix == ".hpp" and SOURCE not in path.parents:
        private |= declared(text, path)
    return private, frozenset((name, owner) for name, owner in shown if layer(owner) in (layer(path), "base"))


def layer(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).parts[1]


def meet(one: Names, other: Names) -> bool:
    """Whether a name is declared in different places."""
    owners = collections.defaultdict(set)
    for name, owner in one | other:
        owners[name].add(owner)
    return any(len(owners[name]) > 1 for name in {name for name, _ in one} & {name for name, _ in other})


def groups(most: int, files: list[pathlib.Path]) -> list[list[pathlib.Path]]:
    """Each file joins the first group that has room and nothing that its names would collide with."""
    made: list[tuple[list[pathlib.Path], Names, Names]] = []
    for path in files:
        private, shown = names(path.resolve())
        for at, (members, others, seen) in enumerate(made):
            if len(members) < most and not (meet(others, private) or meet(seen, private) or meet(others, shown)):
                made[at] = (members + [path], others | private, seen | shown)
                break
        else:
            made.append(([path], private, shown))
    return [members for members, _, _ in made]


if __name__ == "__main__":
    for group in groups(int(sys.argv[1]), [pathlib.Path(name) for name in sys.argv[2:]]):
        print(";".join(map(str, group)))
