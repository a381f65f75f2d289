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


def _abandoned(out):
    """Locks each scratch folder in `out` whose process has ended, and yields it with its descriptor."""
    for folder in sorted(Path(out).glob(PREFIX + "*")):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            if _lock(descriptor, wait=False):
                yield folder, descriptor
            else:
                os.close(descriptor)


def remove_stale(out):
    """Removes the scratch folders in `out` whose process has ended."""
    with contextlib.suppress(OSError), locked(out):  # no folder yet, or no permission
        for folder, descriptor in _abandoned(out):
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)


class Scratch:
    """A folder in `out` that belongs to this process while entered: one whose process has ended if `wanted(folder)` is
    true for it, else a new one; other such folders are removed. It is removed at the end, unless an exception comes for
    which `kept(folder, exception)` is true."""

    def __init__(self, out, wanted, kept):
        self.out, self._wanted, self._kept = out, wanted, kept
        self._folder = self._descriptor = None

    def __enter__(self):
        with locked(self.out):  # no other run may find it before it is locked
            for folder, descriptor in _abandoned(self.out):
                if self._folder is None and self._wanted(folder):
                    self._folder, self._descriptor = folder, descriptor
                else:
                    shutil.rmtree(folder, ignore_errors=True)
                    os.close(descriptor)
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self.out))
                self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
                _lock(self._descriptor, wait=False)
        return self._folder

    def __exit__(self, kind, error, trace):
        if error is None or not self._kept(self._folder, error):
            shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._descriptor)
