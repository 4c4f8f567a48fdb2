"""Runs the command in a pseudo terminal, and shows its screen."""

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyte

from tests.processes import environment

# A session of its own has no terminal until it takes one: Ctrl-C arrives by that.
COMMAND = [
    sys.executable,
    "-c",
    "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "from callboard._cli import main; sys.exit(main())",
]
HISTORY_LINES = 10_000


@dataclass
class Terminal:
    """A terminal with the command in it; `raw` is every byte that the command wrote."""

    file: int
    screen: Any
    process: Process
    raw: bytearray = field(default_factory=bytearray)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _is_over: bool = False

    @property
    def rows(self) -> list[str]:
        """The text on the screen."""
        return [row.rstrip() for row in self.screen.display]

    @property
    def text(self) -> str:
        """The text on the screen, and above it."""
        above = ["".join(row[column].data for column in range(self.screen.columns)) for row in self.screen.history.top]
        return "\n".join([*(row.rstrip() for row in above), *self.rows]).rstrip()

    async def shows(self, *words: str) -> None:
        """Wait until all the words stand there."""
        await self.until(lambda: all(word in self.text for word in words), words)

    async def until(self, is_so: Callable[[], bool], what: object = "it") -> None:
        """Wait until it is so."""
        while not is_so():
            assert not self._is_over, f"the command ended before {what} was there:\n{self.text}"
            self._news.clear()
            await self._news.wait()

    def types(self, text: str) -> None:
        """Press these keys."""
        os.write(self.file, text.encode())

    def presses_ctrl_c(self) -> None:
        """Press Ctrl-C."""
        self.types("\x03")

    async def ends(self) -> int:
        """Wait until the command has ended; its exit code."""
        while not self._is_over:
            self._news.clear()
            await self._news.wait()
        return await self.process.wait()

    def read(self) -> None:
        """Read the output of the command."""
        try:
            piece = os.read(self.file, 64 * 1024)
        except OSError:
            piece = b""
        if piece:
            self.raw += piece
            self.stream.feed(piece)
        else:
            self._is_over = True
            asyncio.get_running_loop().remove_reader(self.file)
        self._news.set()

    def __post_init__(self) -> None:
        self.stream = pyte.ByteStream(self.screen)
        # A terminal's answer to the request for the position of the cursor.
        self.screen.write_process_input = self.types


@asynccontextmanager
async def in_terminal(
    folder: Path, *arguments: str, columns: int = 80, lines: int = 24, variables: dict[str, str] | None = None
) -> AsyncIterator[Terminal]:
    """Run the command in a terminal of this size; `variables` are added to the environment."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    # Readline says in these how large the terminal of the tests is.
    described = {name: value for name, value in environment(folder).items() if name not in ("COLUMNS", "LINES")}
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        cwd=folder,
        env={**described, "TERM": "xterm-256color", **(variables or {})},
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    terminal = Terminal(ours, pyte.HistoryScreen(columns, lines, history=HISTORY_LINES), process)
    asyncio.get_running_loop().add_reader(ours, terminal.read)
    try:
        yield terminal
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)


@dataclass(frozen=True)
class Output:
    """The output of a command without a terminal, and its exit code."""

    out: str
    beside: str
    exit_code: int


async def in_pipes(folder: Path, *arguments: str, said: str | None = None, **settings: str) -> Output:
    """Run the command with pipes all around; `said` is its standard input."""
    code = "import sys; from callboard._cli import main; sys.exit(main())"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, *arguments),
        cwd=folder,
        env=environment(folder, **settings),
        stdin=asyncio.subprocess.DEVNULL if said is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, beside = await process.communicate(None if said is None else said.encode())
    assert process.returncode is not None
    return Output(out.decode(), beside.decode(), process.returncode)
