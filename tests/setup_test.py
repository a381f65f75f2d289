#!/usr/bin/env python3
"""tools/setup in a folder of its own, with stand-ins for apt-get, sudo, id and pip that write down their calls."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
MISSING = "switchyard-no-such-package"


@unittest.skipUnless(shutil.which("dpkg-query"), "this machine has no dpkg")
class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools/setup", self.root / "tools/setup")
        (self.root / "apt.txt").write_text("# a comment\ndpkg  # another\n?switchyard-package-of-no-distribution\n")
        shutil.copy(ROOT / "requirements.txt", self.root)
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

    def run_setup(self):
        """Exit code, standard error, and the calls made."""
        log = self.root / "log"
        log.write_text("")
        env = dict(os.environ, PATH=f"{self.root}/bin:{os.environ['PATH']}", LOG=str(log), PYTHON="python-stand-in")
        done = subprocess.run([self.root / "tools/setup"], env=env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60)
        return done.returncode, done.stderr, log.read_text().splitlines()

    def want_missing_package(self):
        with open(self.root / "apt.txt", "a") as file:
            file.write(f"{MISSING}\n")

    def test_python_packages_come_once_with_torch_first_and_alone(self):
        torch = next(line for line in (ROOT / "requirements.txt").read_text().splitlines() if line.startswith("torch"))
        self.assertEqual(torch, "torch==2.13.0")
        self.assertEqual(self.run_setup(), (0, "", ["venv", f"pip install {torch}", "pip install -r requirements.txt"]))
        self.assertEqual(self.run_setup(), (0, "", []))

    def test_changed_requirements_are_installed_again(self):
        self.run_setup()
        with open(self.root / "requirements.txt", "a") as file:
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
        with open(self.root / "apt.txt", "a") as file:
            file.write(f"?{MISSING}\n")
        self.assertEqual([call for call in self.run_setup()[2] if "apt-get" in call], [])
        self.script("bin/apt-cache", f'[ "$2" = {MISSING} ]')
        self.assertEqual(self.run_setup()[2][:2],
                         ["apt-get update", f"apt-get install -y --no-install-recommends {MISSING}"])

    def test_sudo_is_used_by_others_than_root(self):
        self.want_missing_package()
        self.script("bin/id", "echo 1000")
        self.assertEqual(self.run_setup()[2][:2], ["sudo", "apt-get update"])

    def test_without_root_the_one_command_is_printed(self):
        self.want_missing_package()
        self.script("bin/id", "echo 1000")
        self.script("bin/sudo", "exit 1")
        code, error, calls = self.run_setup()
        self.assertEqual((code, calls), (1, []))
        self.assertEqual(error, f"This needs root. Type, as root:  apt-get install -y {MISSING}\n")

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


if __name__ == "__main__":
    unittest.main()
