"""Folders for what is being written. A folder is locked as long as its process lives, so that what a killed one left is reported from it."""

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
    """Whether the lock was taken. A file system without locks counts as one where another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def locked(folder):
    """For the short moments in which folders come, go, or give up what they hold."""
    with _opened(folder) as descriptor:
        _lock(descriptor, wait=True)
        yield


def remove_stale(out):
    """Removes the folders in `out` whose process is gone."""
    with contextlib.suppress(OSError), locked(out):  # nothing there yet, or nothing to be done about it
        for folder in Path(out).glob(PREFIX + "*"):
            with contextlib.suppress(OSError), _opened(folder) as descriptor:
                if _lock(descriptor, wait=False):
                    shutil.rmtree(folder, ignore_errors=True)


class Scratch:
    """A new folder in `out` while entered."""

    def __init__(self, out):
        self.out = out

    def __enter__(self):
        with locked(self.out):  # no other run may find it before it has its lock
            self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self.out))
            self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            _lock(self._descriptor, wait=False)
        return self._folder

    def __exit__(self, kind, error, trace):
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._descriptor)
