"""One line of progress on standard error, at least every two seconds."""

import os
import sys
import textwrap
import threading
import time

MOST_SECONDS = 1e6  # the same as in src/base/status_line.cpp


class Progress:
    """Counts documents, bytes and tokens while entered. Its own thread shows them, also during long library calls. On a
    terminal the line is rewritten, cut to its width, and the last one wrapped; elsewhere each line is new. The variable
    SWITCHYARD_PROGRESS has other seconds between lines; what is no positive number, as "off", leaves the last one."""

    def __init__(self, title, total_bytes=0, stream=None, interval=None):
        self.title, self.total_bytes = title, total_bytes
        self.documents = self.text_bytes = self.tokens = 0
        self.consumed = 0  # bytes of the input files, out of total_bytes
        self.before = 0    # count of these by an earlier process
        self.stream = stream or sys.stderr
        self.interval = _seconds_between() if interval is None else interval  # 0: no lines until the end
        self.start = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._show_until_done, daemon=True)

    def count(self, texts, consumed):
        """Counts finished texts. consumed: bytes of the input files read so far."""
        self.documents += len(texts)
        self.text_bytes += sum(len(text.encode("utf-8")) for text in texts)
        self.consumed = consumed

    def go_on(self, documents, text_bytes, tokens, consumed):
        """Begins with what an earlier process counted."""
        self.documents, self.text_bytes, self.tokens = documents, text_bytes, tokens
        self.consumed = self.before = consumed

    def line(self):
        seconds = time.monotonic() - self.start
        parts = [f"{self.documents} documents", f"{self.text_bytes / 1e6:.1f} MB"]
        if self.tokens:
            parts.append(f"{self.tokens} tokens")
        if self.before < self.consumed < self.total_bytes:
            parts.append(f"{_clock(seconds * (self.total_bytes - self.consumed) / (self.consumed - self.before))} left")
        else:
            parts.append(f"{_clock(seconds)} passed")
        return f"{self.title}: {', '.join(parts)}"

    def _show_until_done(self):
        while not self._done.wait(self.interval):
            self._write(self.line())

    def _write(self, line, end=False):
        if self.stream.isatty():
            width = _columns(self.stream) - 1  # in the last column some terminals wrap
            if width > 0:
                line = textwrap.fill(line, width) if end else line[:width]
            self.stream.write("\r\x1b[K" + line + ("\n" if end else ""))
        else:
            self.stream.write(line + "\n")
        self.stream.flush()

    def __enter__(self):
        if self.interval > 0:
            self._thread.start()
        return self

    def __exit__(self, kind, error, trace):
        self._done.set()
        if self.interval > 0:
            self._thread.join()
        if kind is None:
            self._write(self.line(), end=True)
        elif self.stream.isatty():
            self.stream.write("\n")


def _seconds_between():
    try:
        seconds = float(os.environ.get("SWITCHYARD_PROGRESS", "1"))
    except ValueError:
        return 0
    return seconds if 0 < seconds <= MOST_SECONDS else 0


def _columns(terminal):
    """Its width now; 0: it doesn't tell."""
    try:
        return os.get_terminal_size(terminal.fileno()).columns
    except OSError:
        return 0


def _clock(seconds):
    seconds = int(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
