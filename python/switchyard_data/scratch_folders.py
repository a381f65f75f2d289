"""Folders for unfinished files. A folder is locked while its process lives, which shows the folders of killed ones."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = ".prepare-"


@contextlib.contextmanager
def _opened(folder):
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor, wait):
    """Whether the lock was taken. Without locks in the file system, it counts as taken by another process."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def locked(folder):
    """Held while scratch folders are created or removed, or their files are moved."""
    with _opened(folder) as descriptor:
        _lock(descriptor, wait=True)
        yield


def remove_stale(out):
    """Removes the scratch folders in `out` whose process has ended."""
    with contextlib.suppress(OSError), locked(out):  # no folder yet, or no permission
        for folder in Path(out).glob(PREFIX + "*"):
            with contextlib.suppress(OSError), _opened(folder) as descriptor:
                if _lock(descriptor, wait=False):
                    shutil.rmtree(folder, ignore_errors=True)


class Scratch:
    """A new folder in `out` that exists while entered."""

    def __init__(self, out):
        self.out = out

    def __enter__(self):
        with locked(self.out):  # no other run may find it before it is locked
            self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self.out))
            self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            _lock(self._descriptor, wait=False)
        return self._folder

    def __exit__(self, kind, error, trace):
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._descriptor)
