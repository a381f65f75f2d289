"""Commands of the program that start in milliseconds, as a server has loaded libtorch for them (fork_server.cpp)."""

import atexit
import re
import subprocess
import tempfile
from pathlib import Path

# Commands that neither measure times nor need the program's own file.
COMMANDS = ("train", "evaluate", "verify")
# What the program reads after it was loaded. Libraries read other variables as they are loaded.
_LATE = re.compile("RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT|SWITCHYARD_.*|CUDA_VISIBLE_DEVICES|STANDIN_.*|"
                   "PYTEST_.*")


def _early(environment):
    return {name: value for name, value in environment.items() if not _LATE.fullmatch(name)}


class ForkServer:
    """Starts at the first command, and ends with this process."""

    def __init__(self, program, server, client, environment):
        self.program, self.server, self.client = str(program), server, client
        self.environment = dict(environment)
        self.process = None

    def start(self):
        folder = tempfile.TemporaryDirectory()
        self.socket = Path(folder.name) / "socket"
        self.process = subprocess.Popen([self.server, self.socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=self.environment)
        atexit.register(lambda: (self.process.communicate(), folder.cleanup()))
        assert self.process.stdout.readline() == b"\n", "the server listens"

    def serves(self, words, environment):
        return (str(words[0]) == self.program and len(words) > 1 and words[1] in COMMANDS and
                _early(environment) == _early(self.environment))

    def words(self, words, environment):
        """A command that does the same as `words`, by the server if it can."""
        if not self.serves(words, environment):
            return words
        if self.process is None:
            self.start()
        return [self.client, self.socket, *words]
