"""`python -m switchyard` is the program."""

import os
import sys

from . import environment, program


def main():
    os.execve(program(), ["switchyard", *sys.argv[1:]], environment())


if __name__ == "__main__":
    main()
