"""Turns text into the token files that Switchyard trains on: `python -m switchyard_data prepare --help`."""


class DataError(Exception):
    """An error in input or options. The message says what, where and how to fix it; the program exits with `status`."""
    status = 2


class DiskError(DataError):
    """The disk is full, or broken."""
    status = 3
