#!/usr/bin/env python3
"""Files that are compiled as one never declare the same private name (cmake/unity_groups.py)."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "cmake"))
sys.dont_write_bytecode = True
import unity_groups  # noqa: E402


def source(private: str, *headers: str, public: str = "") -> str:
    includes = "".join(f'#include "{header}"\n' for header in headers)
    return f"{includes}namespace a {{\nnamespace {{\n{private}\n}}  // namespace\n{public}\n}}  // namespace a\n"


class Groups(unittest.TestCase):
    def groups(self, files: dict[str, str], most: int = 8) -> list[list[str]]:
        """Names of the .cpp files in each group."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            unity_groups.ROOT, unity_groups.SOURCE = root, root / "src"
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            found = unity_groups.groups(most, [root / name for name in files if name.endswith(".cpp")])
            return [[path.stem for path in group] for group in found]

    def test_a_group_has_at_most_so_many_files(self):
        files = {f"src/a/{name}.cpp": source(f"int {name}_of(int x) {{ return x; }}") for name in "pqrst"}
        self.assertEqual(self.groups(files, 2), [["p", "q"], ["r", "s"], ["t"]])

    def test_files_that_declare_a_private_name_twice_are_apart(self):
        for text in ("int twice(int x) { return x; }", "constexpr double twice = 1;", "const int twice{1};",
                     "const A other{{}, 1}, twice{2};",
                     "struct twice {\n  int x;\n};", "class twice final : public Base {\n};", "enum class twice { a };",
                     "using twice = int;", "std::vector<std::pair<int, int>> twice(int x,\n  int y) {\n}",
                     "template <class T>\nT twice(T x) {\n}", "std::string twice(const std::function<void()>& x) {\n}",
                     "std::function<void()> twice(int x) {\n}", "MATCHER_P(twice, text, \"\") { return true; }"):
            files = {"src/a/p.cpp": source("int one(int x) {\n}\n" + text), "src/a/q.cpp": source("int twice;"),
                     "src/a/r.cpp": source("int third;")}
            self.assertEqual(self.groups(files), [["p", "r"], ["q"]], text)

    def test_a_private_name_is_apart_from_the_same_name_in_a_header_of_its_layer_or_base(self):
        for layer, expected in (("a", [["p"], ["q"]]), ("base", [["p"], ["q"]]), ("b", [["p", "q"]])):
            files = {f"src/{layer}/h.hpp": "int shown(int x);\n", "src/a/p.cpp": source("int x;", f"{layer}/h.hpp"),
                     "src/a/q.cpp": source("int shown;")}
            self.assertEqual(self.groups(files), expected, layer)

    def test_what_both_files_have_of_one_header_or_define_for_it_is_no_reason(self):
        files = {"src/a/h.hpp": "int shown(int x);\n", "src/a/p.cpp": source("int x;", "a/h.hpp"),
                 "src/a/q.cpp": source("int y;", "a/h.hpp", public="int shown(int x) { return x; }")}
        self.assertEqual(self.groups(files), [["p", "q"]])

    def test_a_declaration_of_what_another_header_defines_is_no_reason(self):
        files = {"src/base/h.hpp": "class Line {\n};\n", "tests/a/k.hpp": "class Line;\nstruct Other;\n",
                 "tests/a/p.cpp": source("int x;", "base/h.hpp", "k.hpp"), "tests/a/q.cpp": source("int y;", "k.hpp")}
        self.assertEqual(self.groups(files), [["p", "q"]])

    def test_helpers_of_two_test_headers_are_private_and_those_of_one_are_shared(self):
        files = {"tests/a/h.hpp": "inline int help() { return 1; }\n",
                 "tests/a/k.hpp": "inline int help() { return 2; }\n",
                 "tests/a/p.cpp": source("int x;", "h.hpp"), "tests/a/q.cpp": source("int y;", "h.hpp"),
                 "tests/a/r.cpp": source("int z;", "k.hpp")}
        self.assertEqual(self.groups(files), [["p", "q"], ["r"]])


if __name__ == "__main__":
    unittest.main()
