#!/usr/bin/env python3
"""The include graph follows the layers that CMakeLists.txt declares. Run by ctest; `layering_test.py` alone works too.

A layer includes its own headers and those of layers it links (CMake passes on what these link in turn, but an include
is a direct use, so it must be declared). Only comm sees mpi.h and nccl.h; only kernels, runtime and train see libtorch,
by its small headers. Sources and functions stay below the hard size limits, and each source has its test. Paths stay
inside the clone, and tests share no file. Comments begin with their subject, and lines end at 120 columns.
"""
import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TORCH_LAYERS = {"kernels", "runtime", "train"}
COMM_HEADERS = {"mpi.h", "nccl.h"}
HUGE_HEADERS = {"ATen/ATen.h": "12 s", "torch/torch.h": "24 s", "torch/extension.h": "24 s", "torch/all.h": "24 s"}
HARD_LINES = 800
MOST_FUNCTION_LINES = 100
# Functions that may be longer, such as "src/base/text.cpp: std::string join(const Words& words) {", with reasons.
LONG_FUNCTIONS: dict[str, str] = {}
MOST_COLUMNS = 120
REFERENCE_LINES = 1000
SHARED_FILE = re.compile(r"TempDir\(\)|temp_directory_path\(\)")
OUTSIDE = re.compile(r"(CMAKE_SOURCE_DIR\}|SWITCHYARD_SOURCE *\")/\.\..*")
# The beginning of a comment on lines of its own.
OPENING = re.compile(r'^\s*(?://+|#|"""|/\*+) ?(Of|As|Those that)\b')
NO_FUNCTION = re.compile(r"namespace|extern")
# The same of one behind code.
TRAILING = re.compile(r'[^\s/"]\s*// ?(of|as|those that)\b', re.IGNORECASE)
TRAILING_IN_PYTHON = re.compile(r'[^\s#"]\s*# ?(of|as|those that)\b', re.IGNORECASE)
# Words that the glossary has others for, in src and apps; _ parts the words of names.
OUT_WORDS = {"addend": "partial", "granule": "alignment", "lane": "replica", "journey": "in-flight messages",
             "parcel": "message", "carver": "slicer", "likeness": "equivalence class",
             "alike": "equal, in the same way",
             "circle": "cycle", "turned(?! out)": "rotated", "fullest": "with the highest peak",
             "told": "printed, reported", "tells": "prints, reports", "mend": "fix", "needn't": "don't have to",
             "zero tasks?": "zero-fill task", "compute image": "compute copy"}
OUT = re.compile("|".join(rf"(?<![a-z])({word})s?(?![a-z])" for word in OUT_WORDS), re.IGNORECASE)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def declared_layers(cmake: str) -> dict[str, list[str]]:
    """Layer names in order, each with the layers it links."""
    layers = {}
    for name, links in re.findall(r"switchyard_layer\((\w+)(?:\s+LINKS([^)]*))?\)", cmake):
        layers[name] = [link for link in links.split() if link not in ("TORCH", "MPI")]
    return layers


def order_errors(layers: dict[str, list[str]]) -> list[str]:
    errors, below = [], []
    for name, links in layers.items():
        errors += [f"CMakeLists.txt: {name} links {link}, which isn't a layer declared before it"
                   for link in links if link not in below]
        below.append(name)
    return errors


def sources(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in (".cpp", ".hpp"))


def include_errors(root: pathlib.Path, layers: dict[str, list[str]]) -> list[str]:
    errors = []
    for path in sources(root / "src"):
        where, layer = path.relative_to(root), path.relative_to(root / "src").parts[0]
        if layer not in layers:
            errors.append(f"{where}: src/{layer} isn't a layer of CMakeLists.txt")
            continue
        for bracket, header in INCLUDE.findall(path.read_text()):
            first = header.split("/")[0]
            if bracket == '"' and not (root / "src" / header).is_file():
                errors.append(f"{where}: {header} isn't a file of src; name it from there, others' headers in <>")
            elif bracket == '"' and first != layer and first not in layers[layer]:
                errors.append(f"{where}: {layer} includes {header}, but doesn't link {first}")
            elif header in HUGE_HEADERS:
                errors.append(f"{where}: {header} costs {HUGE_HEADERS[header]} a file; "
                              "include the operator's own header")
            elif first in ("ATen", "c10", "torch") and layer not in TORCH_LAYERS:
                errors.append(f"{where}: {header} belongs to {', '.join(sorted(TORCH_LAYERS))} only")
            elif header in COMM_HEADERS and layer != "comm":
                errors.append(f"{where}: {header} belongs to comm only")
    return errors


def size_errors(root: pathlib.Path) -> list[str]:
    limits = [("src", HARD_LINES), ("tests", HARD_LINES), ("apps", HARD_LINES), ("reference", REFERENCE_LINES)]
    errors = []
    for folder, limit in limits:
        for path in sources(root / folder):
            lines = len(path.read_text().splitlines())
            if lines > limit:
                errors.append(f"{path.relative_to(root)}: {lines} lines, at most {limit}: look for a seam")
    return errors


def functions(text: str):
    """Number, count of lines and first line of each function, and of each block inside."""
    lines = text.splitlines()
    for last, line in enumerate(lines):
        if line.strip() != "}":
            continue
        indent = line.index("}")
        first = last - 1
        while not lines[first].strip() or lines[first].startswith("#") or re.match(" *", lines[first]).end() > indent:
            first -= 1
        if not NO_FUNCTION.match(lines[first]):
            yield first + 1, last - first + 1, lines[first]


def function_errors(root: pathlib.Path) -> list[str]:
    errors = []
    for folder in ("src", "apps", "tests", "reference"):
        for path in sources(root / folder):
            where = path.relative_to(root)
            errors += [f"{where}:{number}: a function of {lines} lines, at most {MOST_FUNCTION_LINES}: look for a seam"
                       for number, lines, line in functions(path.read_text())
                       if lines > MOST_FUNCTION_LINES and f"{where}: {line}" not in LONG_FUNCTIONS]
    return errors


def twin_errors(root: pathlib.Path) -> list[str]:
    """src/a/b.cpp has tests/a/b_test.cpp, or b_check.cpp: a program for several processes."""
    errors = []
    for path in sources(root / "src"):
        twin = root / "tests" / path.relative_to(root / "src").with_name(path.stem + "_test.cpp")
        check = twin.with_name(path.stem + "_check.cpp")
        if path.suffix == ".cpp" and not twin.is_file() and not check.is_file():
            errors.append(f"{path.relative_to(root)}: no test {twin.relative_to(root)}")
    return errors


def outside_errors(root: pathlib.Path) -> list[str]:
    """Builds and tests read nothing beside the clone."""
    files = [path for folder in ("cmake", "src", "tests", "apps", "bench", "reference")
             for path in (root / folder).rglob("*")]
    files = [path for path in files if path.name == "CMakeLists.txt" or path.suffix in (".cmake", ".cpp", ".hpp")]
    return [f"{path.relative_to(root)}:{number}: {found[0]} leads out of the clone"
            for path in sorted(files + [root / "CMakeLists.txt"]) if path.is_file()
            for number, line in enumerate(path.read_text().splitlines(), 1) if (found := OUTSIDE.search(line))]


def shared_file_errors(root: pathlib.Path) -> list[str]:
    """Tests run side by side: each one's files lie in a folder of its own."""
    return [f"{path.relative_to(root)}: {found[0]} is a folder of all tests; use Scratch of tests/scratch.hpp"
            for path in sources(root / "tests")
            if path != root / "tests/scratch.hpp" and (found := SHARED_FILE.search(path.read_text()))]


def word_errors(root: pathlib.Path) -> list[str]:
    """Comments that don't begin with their subject, words that the glossary has others for, and lines too long."""
    errors = []
    for folder in ("src", "apps", "tests", "bench", "python", "tools", "demo"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".cpp", ".hpp", ".cu", ".c", ".js", ".css", ".py") or not path.is_file():
                continue
            where, before = path.relative_to(root), ""
            trailing = TRAILING_IN_PYTHON if path.suffix == ".py" else TRAILING
            for number, line in enumerate(path.read_text().splitlines(), 1):
                opening = OPENING.match(line)
                if opening and not before.lstrip().startswith(("//", "#")):
                    errors.append(f"{where}:{number}: a comment begins with \"{opening[1]}\": begin with its subject")
                if (opening := trailing.search(line)):
                    errors.append(f"{where}:{number}: a comment begins with \"{opening[1]}\": begin with its subject")
                if folder in ("src", "apps") and (word := OUT.search(line)):
                    instead = next(better for out, better in OUT_WORDS.items() if re.match(out, word[0], re.IGNORECASE))
                    errors.append(f"{where}:{number}: \"{word[0]}\": {instead}")
                if len(line) > MOST_COLUMNS:
                    errors.append(f"{where}:{number}: {len(line)} columns, at most {MOST_COLUMNS}")
                before = line
    return errors


def axis_errors(root: pathlib.Path) -> list[str]:
    """Files of the planner that name an axis of stages, which only its search space does."""
    axes = re.findall(r'\{(\w+), "\1"[,}]', (root / "src/layout/axes.cpp").read_text())
    named = re.compile(r"StageAxis::(" + "|".join(axes) + r")\b")
    return [
        f"{path.relative_to(root)} names the axis {match[1]}"
        for path in sources(root / "src/planner")
        if path.stem != "space" and (match := named.search(path.read_text()))
    ]


class Repository(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.layers = declared_layers((ROOT / "CMakeLists.txt").read_text())

    def expect_none(self, errors: list[str]):
        self.assertEqual("", "\n".join(errors))

    def test_layers_link_only_downwards(self):
        self.assertGreater(len(self.layers), 15)
        self.expect_none(order_errors(self.layers))

    def test_includes_follow_the_links(self):
        self.expect_none(include_errors(ROOT, self.layers))

    def test_files_are_short_enough(self):
        self.expect_none(size_errors(ROOT))

    def test_functions_are_short_enough(self):
        self.expect_none(function_errors(ROOT))

    def test_each_source_has_its_test(self):
        self.expect_none(twin_errors(ROOT))

    def test_only_the_search_space_of_the_planner_names_axes(self):
        self.expect_none(axis_errors(ROOT))

    def test_nothing_outside_the_clone_is_read(self):
        self.expect_none(outside_errors(ROOT))

    def test_no_two_tests_share_a_file(self):
        self.expect_none(shared_file_errors(ROOT))

    def test_comments_begin_with_their_subject_and_lines_end_at_120_columns(self):
        self.expect_none(word_errors(ROOT))


class Checks(unittest.TestCase):
    """Each rule finds its error in a small tree made for it."""

    LAYERS = {"base": [], "layout": ["base"], "comm": ["base"], "kernels": ["base"]}

    def errors(self, files: dict[str, str], check=None) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in ({"src/base/a.hpp": "", "src/layout/l.hpp": ""} | files).items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return check(root) if check else include_errors(root, self.LAYERS)

    def test_layers_and_links_are_read_from_cmake(self):
        text = ("switchyard_layer(base)\nswitchyard_layer(comm LINKS base MPI)\n"
                "  switchyard_layer(kernels LINKS base comm TORCH)\n")
        self.assertEqual(declared_layers(text), {"base": [], "comm": ["base"], "kernels": ["base", "comm"]})

    def test_a_link_upwards_is_found(self):
        errors = order_errors({"base": ["layout"], "layout": ["base"]})
        self.assertEqual(errors, ["CMakeLists.txt: base links layout, which isn't a layer declared before it"])

    def test_includes_of_linked_layers_pass(self):
        files = {"src/layout/l.cpp": '#include "layout/l.hpp"\n#include <vector>\n#include "base/a.hpp"\n',
                 "src/kernels/k.cpp": "#include <ATen/ops/mm.h>\n#include <c10/core/Scalar.h>\n",
                 "src/comm/m.cpp": "#include <mpi.h>\n"}
        self.assertEqual(self.errors(files), [])

    def test_an_include_upwards_or_sideways_is_found(self):
        errors = self.errors({"src/base/b.cpp": '#include "layout/l.hpp"\n'})
        self.assertEqual(errors, ["src/base/b.cpp: base includes layout/l.hpp, but doesn't link layout"])

    def test_a_header_that_is_not_there_is_found(self):
        errors = self.errors({"src/layout/l.cpp": '#include "l.hpp"\n'})
        self.assertEqual(len(errors), 1)
        self.assertIn("l.hpp isn't a file of src", errors[0])

    def test_an_undeclared_layer_is_found(self):
        self.assertEqual(self.errors({"src/misc/m.cpp": ""}),
                         ["src/misc/m.cpp: src/misc isn't a layer of CMakeLists.txt"])

    def test_torch_and_mpi_outside_their_layers_are_found(self):
        for header, owner in [("ATen/ops/mm.h", "kernels, runtime, train only"), ("torch/library.h", "kernels"),
                              ("mpi.h", "comm only"), ("nccl.h", "comm only")]:
            errors = self.errors({"src/base/b.cpp": f"#include <{header}>\n"})
            self.assertEqual(len(errors), 1, header)
            self.assertIn(owner, errors[0])

    def test_huge_headers_are_found_even_in_torch_layers(self):
        for header in HUGE_HEADERS:
            errors = self.errors({"src/kernels/k.cpp": f"  # include <{header}>\n"})
            self.assertEqual(len(errors), 1, header)
            self.assertIn("include the operator's own header", errors[0])

    def test_long_files_are_found(self):
        files = {"src/base/long.cpp": "\n" * 801, "src/base/fits.cpp": "\n" * 800, "reference/trainer.cpp": "\n" * 1000}
        self.assertEqual(self.errors(files, size_errors),
                         ["src/base/long.cpp: 801 lines, at most 800: look for a seam"])

    def test_long_functions_are_found(self):
        body, end = "    count();\n", "}\n\n"
        fits, long = "int fits() {\n" + 98 * body + end, "void f(int a,\n       int b) {\n" + 98 * body + end
        files = {"src/base/f.cpp": fits + long,
                 "src/base/m.hpp": "namespace a {\nclass B {\n  void m() const {\n" + 99 * body + "  }\n};\n}\n"}
        self.assertEqual(self.errors(files, function_errors),
                         ["src/base/f.cpp:102: a function of 101 lines, at most 100: look for a seam",
                          "src/base/m.hpp:3: a function of 101 lines, at most 100: look for a seam"])

    def test_a_source_without_test_is_found(self):
        files = {"src/base/a.cpp": "", "tests/base/a_test.cpp": "", "src/base/deep/b.cpp": ""}
        self.assertEqual(self.errors(files, twin_errors), ["src/base/deep/b.cpp: no test tests/base/deep/b_test.cpp"])

    def test_an_axis_in_the_planner_is_found(self):
        found = self.errors({"src/layout/axes.cpp": '{{data, "data"}, {outer, "outer"}}',
                             "src/planner/space.cpp": "StageAxis::outer",
                             "src/planner/search.cpp": "mesh[StageAxis::outer]"}, axis_errors)
        self.assertEqual(found, ["src/planner/search.cpp names the axis outer"])

    def test_a_path_that_leads_out_of_the_clone_is_found(self):
        files = {"cmake/a.cmake": "set(x ${CMAKE_SOURCE_DIR}/tests)\nset(y ${CMAKE_SOURCE_DIR}/../y)\n",
                 "tests/base/a_test.cpp": 'auto a = SWITCHYARD_SOURCE "/tests", b = SWITCHYARD_SOURCE "/../b";\n'}
        self.assertEqual(self.errors(files, outside_errors),
                         ["cmake/a.cmake:2: CMAKE_SOURCE_DIR}/../y) leads out of the clone",
                          'tests/base/a_test.cpp:1: SWITCHYARD_SOURCE "/../b"; leads out of the clone'])

    def test_a_file_in_the_folder_of_all_tests_is_found(self):
        files = {"tests/scratch.hpp": "temp_directory_path()", "tests/base/a_test.cpp": 'testing::TempDir() + "a"'}
        self.assertEqual(self.errors(files, shared_file_errors),
                         ["tests/base/a_test.cpp: TempDir() is a folder of all tests; use Scratch of "
                          "tests/scratch.hpp"])

    def test_a_comment_without_a_subject_and_a_long_line_are_found(self):
        files = {"src/base/b.hpp": "/// The sizes.\n/// of all dims.\nint a;  // of a.\n  // Those that are left.\n",
                 "bench/c.py": '"""As ever."""\n# A row.\n' + 121 * "x",
                 "tests/system/d.py": 120 * "x" + "\n" + 121 * "x"}
        self.assertEqual(self.errors(files, word_errors),
                         ['src/base/b.hpp:3: a comment begins with "of": begin with its subject',
                          'src/base/b.hpp:4: a comment begins with "Those that": begin with its subject',
                          "tests/system/d.py:2: 121 columns, at most 120",
                          'bench/c.py:1: a comment begins with "As": begin with its subject',
                          "bench/c.py:3: 121 columns, at most 120"])


    def test_words_that_the_glossary_has_others_for_are_found(self):
        files = {"src/base/b.hpp": "int told_ = 0;\nint lanes;\n// It turned out.\n// The zero tasks.\nint planes;\n",
                 "tests/base/b_test.cpp": "int told = 0;\n"}
        self.assertEqual(self.errors(files, word_errors),
                         ['src/base/b.hpp:1: "told": printed, reported', 'src/base/b.hpp:2: "lanes": replica',
                          'src/base/b.hpp:4: "zero tasks": zero-fill task'])


if __name__ == "__main__":
    unittest.main()
