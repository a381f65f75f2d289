import io
import re
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


def test_an_error_ends_the_line():
    stream = Terminal()
    try:
        with Progress("reading", 0, stream):
            raise ValueError
    except ValueError:
        pass
    assert stream.getvalue() == "\n"
