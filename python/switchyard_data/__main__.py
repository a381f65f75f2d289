"""Command line: `python -m switchyard_data prepare ...`."""

import argparse
import contextlib
import errno
import io
import os
import sys

from . import DataError


def _parser():
    parser = argparse.ArgumentParser(prog="switchyard data", description="Prepares token files for training.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("prepare", help="tokenize documents into corpus.bin and corpus.idx",
                                  description="Tokenizes documents into DIR/corpus.bin and corpus.idx, with "
                                              "the tokenizer's files and meta.json. A second run with the same inputs "
                                              "and options does nothing, or goes on where the first one was "
                                              "interrupted.")
    command.add_argument("--input", nargs="+", required=True, action="extend", metavar="PATH",
                         help="folders of text files, or files: text, .jsonl, .jsonl.gz, .jsonl.zst, .json.gz, "
                         ".json.zst, .parquet; a document is a file or a row")
    command.add_argument("--tokenizer", required=True, metavar="FILE|train:VOCAB",
                         help="Hugging Face tokenizer.json, or train:8192 to train a byte-level BPE of that size on "
                              "the inputs")
    command.add_argument("--out", required=True, metavar="DIR", help="folder to write")
    command.add_argument("--eos", metavar="TOKEN|none",
                         help="token put after each document (default: the one that the tokenizer declares; "
                              "<|endoftext|> for train:)")
    command.add_argument("--bos", metavar="TOKEN|none",
                         help="token put before each document (default: the one that the tokenizer itself puts before "
                              "a text; none for train:)")
    command.add_argument("--text-key", metavar="KEY",
                         help="key or column of the text in rows (default: text, else content; messages with "
                              "--messages)")
    command.add_argument("--messages", action="store_true",
                         help="rows are conversations: lists of messages with role and content, rendered through the "
                              "tokenizer's chat template; only answers count in the loss (corpus.mask). Documents have "
                              "no further tokens around them unless --bos or --eos name some")
    command.add_argument("--chat-template", metavar="FILE", help="another chat template (Jinja) for --messages")
    command.add_argument("--suffix", action="append", default=[], metavar=".EXT",
                         help="take only files with this ending from folders; repeatable")
    command.add_argument("--force", action="store_true",
                         help="prepare again even if nothing has changed; also replaces a corpus of other inputs")
    return parser


def _open_standard_files():
    """Opens closed standard streams; otherwise the next file opened would get their descriptor and the output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")


def main(arguments=None):
    _open_standard_files()
    printed = io.StringIO()  # short; the parser would ignore errors when it prints help
    with contextlib.redirect_stdout(printed):
        try:
            status = _run(arguments)
        except SystemExit as end:  # raised by the parser
            status = end.code
    return _write(printed.getvalue()) or status


def _write(text):
    """Exit status 0 or 3."""
    if not text:
        return 0
    try:
        if sys.stdout is None:  # it was closed from the start
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="backslashreplace")  # the name of a folder may be any bytes
        sys.stdout.write(text)
        sys.stdout.flush()
        return 0
    except OSError as error:
        print(f"switchyard: cannot write to standard output: {error.strerror}. What was printed is incomplete.",
              file=sys.stderr)
        # what is left in the buffer goes there at exit, without a second message
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 3


def _edges(meta):
    if meta["options"]["messages"]:
        return f"{meta['labels']} tokens are answers and count in the loss"
    edges = [f"{verb} with {meta[name]['token']}" for name, verb in (("bos", "begins"), ("eos", "ends")) if meta[name]]
    if edges:
        return f"each document {' and '.join(edges)}"
    reason = "" if meta["options"]["eos"] else ": the tokenizer declares none; name one with --eos"
    return f"no token ends a document{reason}"


def _run(arguments):
    options = _parser().parse_args(arguments)
    can_go_on = None
    try:
        from .prepare import Options, can_go_on, prepare  # slow, and not needed for help
        del options.command
        options = Options(**vars(options))
        meta, done = prepare(options)
    except DataError as error:
        text = " ".join(str(error).split())  # a library's message may have several lines
        print(f"switchyard: {text}", file=sys.stderr)
        return error.status
    except ModuleNotFoundError as error:
        print(f"switchyard: the Python package {error.name} is missing in {sys.executable}. Install it there, name "
              "another Python in SWITCHYARD_PYTHON, or run `make setup` in the source folder, whose .venv then has it.",
              file=sys.stderr)
        return 2
    except MemoryError:
        print("switchyard: there is not enough memory. Prepare fewer inputs at once, or a smaller vocabulary.",
              file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        begun = can_go_on is not None and can_go_on(options.out)
        rest = "The same command goes on from there." if begun else "Nothing was written."
        print(f"switchyard: interrupted. {rest}", file=sys.stderr)
        return 130
    state = "" if done else "up to date: "
    print(f"{state}{options.out}: {meta['documents']} documents, {meta['tokens']} tokens, longest {meta['longest']}, "
          f"vocabulary {meta['vocab_size']}")
    print(_edges(meta))
    if done and (meta["empty_documents"] or meta["skipped_files"]):
        empty = "conversations without answers" if meta["options"]["messages"] else "empty documents"
        print(f"skipped: {meta['empty_documents']} {empty}, {meta['skipped_files']} files that are not UTF-8 "
              "text")
    return 0


if __name__ == "__main__":
    sys.exit(main())
