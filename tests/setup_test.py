#!/usr/bin/env python3
"""tools/setup in a folder of its own, with stand-ins for apt-get, sudo, id and pip that write down their calls."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
MISSING = "switchyard-no-such-package"
LOCKED = "pip install --require-hashes --no-deps -r"


@unittest.skipUnless(shutil.which("dpkg-query"), "this machine has no dpkg")
class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools/setup", self.root / "tools/setup")
        shutil.copytree(ROOT / "packages", self.root / "packages")
        (self.root / "packages/apt.txt").write_text("# a comment\ndpkg  # another\n?switchyard-package-of-nobody\n")
        (self.root / "packages/apt-test.txt").write_text("")
        self.script("bin/apt-get", 'echo "apt-get $*" >>"$LOG"')
        self.script("bin/sudo", '[ "$1" = -n ] && exit 0; echo sudo >>"$LOG"; exec "$@"')
        self.script("bin/id", "echo 0")
        # Stands for Python: makes a .venv whose pip writes down what it is reported to install.
        self.script("bin/python-stand-in", 'if [ "$1" = -m ]; then mkdir -p .venv/bin; cp "$0" .venv/bin/python; '
                                           'cp "$(dirname "$0")/pip-stand-in" .venv/bin/pip; echo venv >>"$LOG"; fi')
        self.script("bin/pip-stand-in", 'echo "pip $*" >>"$LOG"')

    def script(self, name: str, body: str):
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def run_setup(self, *arguments):
        """Exit code, standard error, and the calls made."""
        log = self.root / "log"
        log.write_text("")
        env = dict(os.environ, PATH=f"{self.root}/bin:{os.environ['PATH']}", LOG=str(log), PYTHON="python-stand-in")
        done = subprocess.run([self.root / "tools/setup", *arguments], env=env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60)
        return done.returncode, done.stderr, log.read_text().splitlines()

    def want_missing_package(self, name="apt.txt"):
        with open(self.root / "packages" / name, "a") as file:
            file.write(f"{MISSING}\n")

    def without_root(self):
        self.script("bin/id", "echo 1000")
        self.script("bin/sudo", "exit 1")

    def test_python_packages_come_once_by_their_hashes(self):
        self.assertEqual(self.run_setup(), (0, "", ["venv", f"{LOCKED} packages/requirements.txt", "pip install torch==2.13.0"]))
        self.assertEqual(self.run_setup(), (0, "", []))

    def test_what_only_tests_need_comes_when_it_is_asked_for(self):
        self.run_setup()
        self.want_missing_package("apt-test.txt")
        self.assertEqual(self.run_setup(), (0, "", []))
        calls = self.run_setup("test")[2]
        self.assertEqual(calls, ["apt-get update", f"apt-get install -y --no-install-recommends {MISSING}",
                                 f"{LOCKED} packages/requirements-test.txt", "pip install torch==2.13.0"])

    def test_another_word_than_test_is_refused(self):
        self.assertEqual(self.run_setup("tests"), (2, "usage: tools/setup [test]\n", []))

    def test_running_and_testing_have_the_same_versions(self):
        lines = {name: set(re.findall(r"^[\w.-]+==.*", (ROOT / "packages" / name).read_text(), re.MULTILINE))
                 for name in ("requirements.txt", "requirements-test.txt")}
        self.assertGreater(len(lines["requirements.txt"]), 20)
        self.assertLessEqual(lines["requirements.txt"], lines["requirements-test.txt"])

    def test_changed_requirements_are_installed_again(self):
        self.run_setup()
        with open(self.root / "packages/requirements.txt", "a") as file:
            file.write("another\n")
        self.assertEqual(len(self.run_setup()[2]), 2)

    def test_a_failed_install_is_tried_again(self):
        self.script("bin/pip-stand-in", "exit 9")
        self.assertEqual(self.run_setup()[0], 9)
        self.assertEqual(self.run_setup()[0], 9)

    def test_only_missing_packages_are_installed(self):
        self.want_missing_package()
        code, _, calls = self.run_setup()
        self.assertEqual(code, 0)
        self.assertEqual(calls[:2], ["apt-get update", f"apt-get install -y --no-install-recommends {MISSING}"])

    def test_optional_packages_are_installed_where_there_are_any(self):
        with open(self.root / "packages/apt.txt", "a") as file:
            file.write(f"?{MISSING}\n")
        self.assertEqual([call for call in self.run_setup()[2] if "apt-get" in call], [])
        self.script("bin/apt-cache", f'[ "$2" = {MISSING} ]')
        self.assertEqual(self.run_setup()[2][:2],
                         ["apt-get update", f"apt-get install -y --no-install-recommends {MISSING}"])

    def test_sudo_is_used_by_others_than_root(self):
        self.want_missing_package()
        self.script("bin/id", "echo 1000")
        self.assertEqual(self.run_setup()[2][:2], ["sudo", "apt-get update"])

    def test_without_root_what_running_needs_comes_from_elsewhere(self):
        self.want_missing_package()
        self.without_root()
        self.script("bin/python-stand-in", 'case $1 in -m) mkdir -p .venv/bin; cp "$(dirname "$0")/pip-stand-in" '
                                           '.venv/bin/pip; cp "$0" .venv/bin/python;; tools/*) echo "$1" >>"$LOG";; esac')
        code, error, calls = self.run_setup()
        self.assertEqual((code, error, calls[-1]), (0, "", "tools/without_root.py"))

    def test_without_root_the_one_command_for_testing_is_printed(self):
        self.want_missing_package("apt-test.txt")
        self.without_root()
        code, error, _ = self.run_setup("test")
        self.assertEqual(code, 1)
        self.assertEqual(error, "Testing needs packages that only root can install. Type, as root: "
                                f"apt-get install -y {MISSING}\n")

    def test_a_failing_apt_get_stops_it(self):
        self.want_missing_package()
        self.script("bin/apt-get", "exit 100")
        code, _, calls = self.run_setup()
        self.assertEqual((code, calls), (100, []))

    def test_an_old_python_is_refused(self):
        self.script("bin/python-stand-in", '[ "$1" = --version ] && echo Python 3.8.2 && exit 0; exit 1')
        code, error, calls = self.run_setup()
        self.assertEqual((code, calls), (1, []))
        self.assertIn("Python 3.8.2 is too old: Python 3.10 or newer is needed", error)


@unittest.skipUnless(shutil.which("cmake") and shutil.which("ninja"), "no CMake")
class Configure(unittest.TestCase):
    """What CMake says of libtorch, in a folder with links to the sources and without a .venv."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("CMakeLists.txt", "cmake", "src", "apps", "clusters"):
            (self.root / name).symlink_to(ROOT / name)

    def configure(self, *options):
        """The words of the error that ends it."""
        done = subprocess.run(["cmake", "-G", "Ninja", "-S", self.root, "-B", self.root / "build", "-DSWITCHYARD_TESTS=OFF",
                               "-DSWITCHYARD_BENCH=OFF", *options], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 1)
        return " ".join(done.stderr.split())

    def test_without_libtorch_it_says_how_to_get_it(self):
        self.assertIn("libtorch not found in .venv. Run `make setup`, set Torch_DIR, or set SWITCHYARD_TORCH=OFF.",
                      self.configure())

    def test_a_torch_of_another_version_is_refused(self):
        torch = self.root / "torch"
        (torch / "share/cmake/Torch").mkdir(parents=True)
        option = f"-DTorch_DIR={torch}/share/cmake/Torch"
        self.assertIn("is not in a torch package. Name its folder share/cmake/Torch.", self.configure(option))
        for version in ("2.10.1+cpu", "2.14.0"):
            (torch / "version.py").write_text(f"__version__ = '{version}'\n")
            error = self.configure(option)
            self.assertIn(f"torch {version.split('+')[0]} in {torch} is not supported: 2.11 to 2.13 are.", error)


if __name__ == "__main__":
    unittest.main()
