#!/usr/bin/env python3
"""tools/setup in a folder of its own, with stand-ins for apt-get, sudo, id and pip that write down their calls, and
tools/without_root.py with a package index of its own."""
import contextlib
import hashlib
import http.server
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
import unittest.mock
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MISSING = "switchyard-no-such-package"
LOCKED = "pip install --require-hashes --no-deps -r"
TORCH = ["pip download --no-deps --dest .venv/torch torch==2.13.0",
         "pip install --no-index --find-links .venv/torch --require-hashes --no-deps -r packages/torch.txt"]
FOR_CUDA = f"{LOCKED} packages/torch-cuda.txt"


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
        for kind in ("test", "ci"):
            (self.root / f"packages/apt-{kind}.txt").write_text("")
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
        done = subprocess.run([self.root / "tools/setup", *arguments], env=env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr, log.read_text().splitlines()

    def want_missing_package(self, name="apt.txt"):
        with open(self.root / "packages" / name, "a") as file:
            file.write(f"{MISSING}\n")

    def without_root(self):
        self.script("bin/id", "echo 1000")
        self.script("bin/sudo", "exit 1")

    def test_python_packages_come_once_by_their_hashes(self):
        self.assertEqual(self.run_setup(), (0, "", ["venv", f"{LOCKED} packages/requirements.txt", *TORCH]))
        self.assertEqual(self.run_setup(), (0, "", []))

    def test_what_only_tests_need_comes_when_it_is_asked_for(self):
        self.run_setup()
        self.want_missing_package("apt-test.txt")
        self.assertEqual(self.run_setup(), (0, "", []))
        calls = self.run_setup("test")[2]
        self.assertEqual(calls, ["apt-get update", f"apt-get install -y --no-install-recommends {MISSING}",
                                 f"{LOCKED} packages/requirements-test.txt", *TORCH])

    def test_what_only_the_checks_need_comes_when_it_is_asked_for(self):
        self.run_setup("test")
        self.want_missing_package("apt-ci.txt")
        self.assertEqual(self.run_setup("test"), (0, "", []))
        self.assertEqual(self.run_setup("ci")[2],
                         ["apt-get update", f"apt-get install -y --no-install-recommends {MISSING}"])

    def test_make_test_needs_no_compiler_of_the_checks(self):
        lists = {kind: (ROOT / "packages" / f"apt-{kind}.txt").read_text() for kind in ("test", "ci")}
        self.assertNotIn("clang", lists["test"])
        self.assertIn("clang", lists["ci"])
        self.assertIn("\ntools/setup ci\n", (ROOT / ".ci/run").read_text())

    def test_another_word_is_refused(self):
        self.assertEqual(self.run_setup("tests"), (2, "usage: tools/setup [test | ci]\n", []))

    def test_running_and_testing_have_the_same_versions(self):
        lines = {name: set(re.findall(r"^[\w.-]+==.*", (ROOT / "packages" / name).read_text(), re.MULTILINE))
                 for name in ("requirements.txt", "requirements-test.txt")}
        self.assertGreater(len(lines["requirements.txt"]), 20)
        self.assertLessEqual(lines["requirements.txt"], lines["requirements-test.txt"])

    def test_torch_has_one_version_and_hashes_of_its_builds(self):
        locked = (ROOT / "packages/torch.txt").read_text()
        self.assertRegex(locked, r"^(#.*\n)+torch==2.13.0( \\\n    --hash=sha256:[0-9a-f]{64}){19}\n$")
        self.assertEqual(len(set(re.findall("sha256:(.*?)[ \n]", locked))), 19)
        self.assertIn("\ntorch==2.13.0\n", (ROOT / "packages/requirements.in").read_text())
        self.assertEqual((ROOT / "pyproject.toml").read_text().count('"torch==2.13.0"'), 2)

    def test_torch_that_is_there_is_not_fetched_again(self):
        self.run_setup()
        for version, calls in (("2.13.0", [FOR_CUDA]), ("2.13.0+cpu", []), ("2.13.1", TORCH), ("12.13.0", TORCH)):
            (self.root / ".venv/setup.stamp").unlink()
            self.script(".venv/bin/python", f"echo {version}")
            self.assertEqual(self.run_setup()[2][1:], calls, version)

    def test_pypis_build_of_torch_gets_what_it_needs_for_cuda_by_its_hashes(self):
        self.run_setup()
        for version, calls in (("2.13.0", [*TORCH, FOR_CUDA]), ("2.13.0+cpu", TORCH)):
            (self.root / ".venv/setup.stamp").unlink()
            self.script(".venv/bin/python", f"[ -e {self.root}/there ] && echo {version}")
            self.script(".venv/bin/pip", 'echo "pip $*" >>"$LOG"; '
                                         f'case "$*" in *packages/torch.txt) touch {self.root}/there;; esac')
            self.assertEqual(self.run_setup()[2][1:], calls, version)
            (self.root / "there").unlink()

    def test_what_torch_needs_for_cuda_is_locked(self):
        locked = (ROOT / "packages/torch-cuda.txt").read_text()
        package = (r"(nvidia-[a-z0-9-]+|cuda-[a-z0-9-]+|triton)==[\d.]+( ;[^\n]*)? \\\n"
                   r"( +--hash=sha256:[0-9a-f]{64}( \\)?\n)+")
        self.assertRegex(locked, rf"\A(#.*\n)+({package})+\Z")
        for name in ("nvidia-nccl-cu", "nvidia-cublas", "nvidia-cudnn-cu", "triton"):
            self.assertRegex(locked, rf"(?m)^{name}\d*==")

    def test_a_build_of_torch_with_another_hash_is_refused(self):
        self.script("bin/pip-stand-in", '[ "$2" != --no-index ]')
        code, error, _ = self.run_setup()
        self.assertEqual((code, error), (1, "packages/torch.txt lacks the hash of this build of torch. If it is the "
                                            "one that you want, add what this prints: "
                                            ".venv/bin/pip hash .venv/torch/*\n"))
        self.assertEqual(self.run_setup()[0], 1)

    def test_changed_requirements_are_installed_again(self):
        self.run_setup()
        with open(self.root / "packages/requirements.txt", "a") as file:
            file.write("another\n")
        self.assertEqual(len(self.run_setup()[2]), 3)
        for name in ("torch.txt", "torch-cuda.txt"):
            with open(self.root / "packages" / name, "a") as file:
                file.write("# another build\n")
            self.assertEqual(len(self.run_setup()[2]), 3)

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

    def test_optional_packages_stop_nobody(self):
        with open(self.root / "packages/apt-test.txt", "a") as file:
            file.write(f"?{MISSING}\n")
        self.script("bin/apt-cache", "exit 0")
        self.script("bin/apt-get", "exit 100")
        self.assertEqual(self.run_setup("test")[:2], (0, ""))  # no network
        self.without_root()
        code, error, calls = self.run_setup("test")
        self.assertEqual((code, error, calls), (0, "", []))
        self.want_missing_package("apt-test.txt")
        self.script("bin/id", "echo 0")
        self.assertEqual(self.run_setup("test")[0], 100)

    def test_sudo_is_used_by_others_than_root(self):
        self.want_missing_package()
        self.script("bin/id", "echo 1000")
        self.assertEqual(self.run_setup()[2][:2], ["sudo", "apt-get update"])

    def test_without_root_what_running_needs_comes_from_elsewhere(self):
        self.want_missing_package()
        self.without_root()
        self.script("bin/python-stand-in", 'case $1 in -m) mkdir -p .venv/bin; cp "$(dirname "$0")/pip-stand-in" '
                                           '.venv/bin/pip; cp "$0" .venv/bin/python;; '
                                           'tools/*) echo "$1" >>"$LOG";; esac')
        code, error, calls = self.run_setup()
        self.assertEqual((code, error, calls[-1]), (0, "", "tools/without_root.py"))

    def test_without_root_and_a_compiler_nothing_is_installed(self):
        self.want_missing_package()
        self.without_root()
        shutil.copy(ROOT / "tools/without_root.py", self.root / "tools")
        with open(self.root / "bin/python-stand-in", "a") as file:
            file.write(f'case $1 in tools/*) PATH=$(dirname "$0") exec {sys.executable} "$@";; esac\n')
        with unittest.mock.patch.dict(os.environ):
            os.environ.pop("CXX", None)
            code, error, calls = self.run_setup()
        self.assertEqual((code, calls), (1, []))
        self.assertTrue(error.startswith("No C++ compiler found."), error)

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


def module_of(path: pathlib.Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tar_of(files: dict):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def wheel_of(files: dict):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


class Index(http.server.BaseHTTPRequestHandler):
    """Lists and gives the files of `packages` as PyPI does."""
    packages: dict = {}

    def do_GET(self):  # noqa: N802
        *_, folder, name = self.path.split("/")
        if name:
            answer = self.packages[name]
        else:
            urls = [name for name in self.packages if name.replace("_", "-").startswith(folder)]
            answer = json.dumps({"files": [{"filename": name, "url": f"{self.server.address}/files/{name}"}
                                           for name in urls]}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class WithoutRoot(unittest.TestCase):
    """A machine that has programs, but no headers."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        Index.packages = {
            "first_half-1.0.tar.gz": tar_of({"first_half-1.0/deep/One.hpp": b"one", "first_half-1.0/x.c": b"x"}),
            "other-2.1-py3-none-any.whl": wheel_of({"other/include/two/two.h": b"two", "other/x.py": b"x"})}
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
        server.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.tool = module_of(ROOT / "tools/without_root.py")
        self.tool.VENV, self.tool.HEADERS = self.root, self.root / "headers"
        self.tool.LIBRARIES = tuple(
            (header, name, hashlib.sha256(Index.packages[name]).hexdigest(), places) for header, name, places in (
                ("One.hpp", "first_half-1.0.tar.gz", {"first_half-1.0/deep/One.hpp": "One.hpp"}),
                ("two/two.h", "other-2.1-py3-none-any.whl", {"other/include/two/": "two/"})))
        self.tool.prefixes = lambda: [self.root / "usr"]
        self.tool.missing_python_packages = lambda: []
        settings = unittest.mock.patch.dict(os.environ, {"PIP_INDEX_URL": f"{server.address}/simple/", "CXX": "c++"})
        settings.start()
        self.addCleanup(settings.stop)

    def get(self):
        """Runs it; the headers that are there then, and the options for CMake."""
        with contextlib.redirect_stdout(io.StringIO()):
            self.tool.main()
        found = {str(path.relative_to(self.tool.HEADERS)): path.read_text()
                 for path in self.tool.HEADERS.rglob("*") if path.is_file()}
        return found, (self.root / "cmake-options").read_text().splitlines()

    def refusal(self):
        with self.assertRaises(self.tool.Missing) as caught:
            self.get()
        self.assertFalse((self.root / "cmake-options").exists())
        return str(caught.exception)

    def test_headers_come_out_of_packages(self):
        expected = {"One.hpp": "one", "two/two.h": "two"}, [f"-DSWITCHYARD_HEADERS={self.tool.HEADERS}"]
        self.assertEqual(self.get(), expected)
        Index.packages = {}
        self.assertEqual(self.get(), expected)  # what is there is not fetched again

    def test_headers_of_the_machine_are_used(self):
        for name in ("One.hpp", "two/two.h"):
            path = self.root / "usr/include" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        self.assertEqual(self.get(), ({}, []))

    def test_a_file_with_another_hash_is_refused(self):
        Index.packages["first_half-1.0.tar.gz"] = tar_of({"first_half-1.0/deep/One.hpp": b"another"})
        self.assertRegex(self.refusal(),
                         r"/files/first_half-1.0.tar.gz has another hash than [0-9a-f]{64}: it is not the file")
        self.assertFalse(self.tool.HEADERS.exists())

    def test_an_index_without_the_file_is_named(self):
        del Index.packages["other-2.1-py3-none-any.whl"]
        self.assertRegex(self.refusal(), r"^http://127.0.0.1:\d+/simple has no other-2.1-py3-none-any.whl.$")

    def test_where_no_index_can_be_reached_it_says_what_to_set(self):
        with unittest.mock.patch.dict(os.environ, {"PIP_INDEX_URL": f"file://{self.root}/nothing"}):
            self.assertRegex(self.refusal(),
                             "^Cannot read file:.*Set PIP_INDEX_URL to a mirror of PyPI that can be reached.$")

    def test_packages_that_are_programs_are_installed_by_their_hashes(self):
        calls = []
        with unittest.mock.patch.object(self.tool.subprocess, "run", lambda words, check: calls.append(words)):
            self.tool.install(["ninja"])
        self.assertEqual(calls[0][1:], ["-m", "pip", "install", "--require-hashes", "--no-deps", "-r",
                                        self.root / "without-root.txt"])
        wanted = (self.root / "without-root.txt").read_text()
        self.assertRegex(wanted, r"^ninja==[\d.]+ \\\n( +--hash=sha256:[0-9a-f]{64}( \\)?\n)+$")

    def test_without_a_compiler_it_says_what_to_type(self):
        env = {name: value for name, value in os.environ.items() if name != "CXX"} | {"PATH": str(self.root)}
        done = subprocess.run([sys.executable, ROOT / "tools/without_root.py"], env=env, capture_output=True, text=True,
                              timeout=60)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr, "No C++ compiler found. Ask the machine's administrator for one (apt-get install "
                                      "g++), or install it with conda: conda install -c conda-forge gxx\n")

    def test_each_library_has_its_header_in_its_package(self):
        for header, name, digest, places in module_of(ROOT / "tools/without_root.py").LIBRARIES:
            self.assertRegex(digest, "^[0-9a-f]{64}$", name)
            self.assertTrue(any(header == place or (place.endswith("/") and header.startswith(place))
                                for place in places.values()), header)


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
        done = subprocess.run(["cmake", "-G", "Ninja", "-S", self.root, "-B", self.root / "build",
                               "-DSWITCHYARD_TESTS=OFF", "-DSWITCHYARD_BENCH=OFF", *options],
                              capture_output=True, text=True, timeout=300)
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
