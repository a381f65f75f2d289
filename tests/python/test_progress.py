import contextlib
import fcntl
import io
import os
import pty
import re
import struct
import termios
import time

from switchyard_data.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_lines_come_by_themselves_while_nothing_is_counted():
    stream = io.StringIO()
    with Progress("reading", 100, stream, interval=0.01):
        time.sleep(0.2)
    assert stream.getvalue().count("reading: 0 documents") >= 3


def test_the_default_interval_is_under_two_seconds():
    assert Progress("x").interval < 2


def test_the_variable_sets_the_interval_or_leaves_the_last_line(monkeypatch):
    monkeypatch.setenv("SWITCHYARD_PROGRESS", "60")
    assert Progress("x").interval == 60
    for off in ("off", "0", "-1", "nan", "inf", ""):
        monkeypatch.setenv("SWITCHYARD_PROGRESS", off)
        stream = io.StringIO()
        with Progress("reading", 100, stream) as progress:
            assert progress.interval == 0
        assert stream.getvalue() == "reading: 0 documents, 0.0 MB, 0 s passed\n"


def test_a_line_has_documents_megabytes_tokens_and_time_left():
    progress = Progress("tokenizing", 1000)
    progress.start -= 10
    progress.count(["ä" * 500_000, "b" * 500_000], consumed=100)
    progress.tokens = 7
    assert re.fullmatch(r"tokenizing: 2 documents, 1\.5 MB, 7 tokens, 1 min 3\d s left", progress.line())
    progress.consumed = 1000
    assert re.fullmatch(r"tokenizing: 2 documents, 1\.5 MB, 7 tokens, 1\d s passed", progress.line())
    progress.start -= 7260
    assert progress.line().endswith("2 h 1 min passed")


def test_a_terminal_keeps_one_line():
    stream = Terminal()
    with Progress("reading", 0, stream, interval=0.01):
        time.sleep(0.05)
    assert stream.getvalue().count("\n") == 1 and stream.getvalue().count("\r") >= 2


def test_no_line_is_wider_than_the_terminal_also_when_it_is_resized():
    ours, theirs = pty.openpty()
    stream = os.fdopen(theirs, "w", encoding="utf-8")
    progress = Progress("tokenizing", 0, stream, interval=0.01)
    progress.line = lambda: "tokenizing: 1234567 documents, 1000.0 MB, 250000000 tokens, 9 min 12 s left"
    said = ""

    def until_a_line_has(width):
        nonlocal said
        while width not in map(len, said.split("\r\x1b[K")[1:-1]):
            said += os.read(ours, 4096).decode()
            assert said.count("\r\x1b[K") < 1000, f"no line has {width}: {said[-500:]!r}"
        said = "\r\x1b[K" + said.split("\r\x1b[K")[-1]

    def resize(columns):
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))

    with progress:
        for columns, width in ((0, 75), (40, 39), (60, 59), (120, 75), (40, 39)):  # 0: it doesn't tell
            resize(columns)
            until_a_line_has(width)
    stream.close()
    with contextlib.suppress(OSError):
        while True:
            said += os.read(ours, 4096).decode()
    os.close(ours)
    *rewritten, last = said.split("\r\x1b[K")[1:]
    assert {len(line) for line in rewritten} <= {39}
    assert last == "tokenizing: 1234567 documents, 1000.0\r\nMB, 250000000 tokens, 9 min 12 s left\r\n"


def test_an_error_ends_the_line():
    stream = Terminal()
    try:
        with Progress("reading", 0, stream):
            raise ValueError
    except ValueError:
        pass
    assert stream.getvalue() == "\n"
