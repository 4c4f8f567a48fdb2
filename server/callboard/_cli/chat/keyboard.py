"""The keyboard of a terminal while a run is drawn: what is typed is not shown, but where the user is asked."""

import asyncio
import os
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from callboard._cli.chat.displays import Display
from callboard._cli.chat.drawing import show_block
from callboard._cli.chat.screen import FALLBACK, Row, Span
from callboard._cli.chat.visible import make_line
from callboard_protocol import InputRequest

LINE_BYTES = 64 * 1024
_LOCAL_FLAGS = 3

PROMPTS = {"confirmation": "  Yes or no? [y/N] ", "input": "  > ", "password": "  (not shown) > "}
TOO_LATE = "It is not asked any more."


class Keyboard:
    """Reads lines from a terminal, without holding up the event loop."""

    def __init__(self, terminal: TextIO) -> None:
        self._file = terminal.fileno()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Show nothing that is typed until the block ends: it would stand in the middle of what is drawn."""
        if os.tcgetpgrp(self._file) != os.getpgrp():
            # In the background the terminal is somebody else's, and who changes it is stopped.
            yield
            return
        before = termios.tcgetattr(self._file)
        try:
            self._echo(is_on=False)
            yield
        finally:
            termios.tcsetattr(self._file, termios.TCSADRAIN, before)

    async def ask(self, question: InputRequest, display: Display) -> bool | str | None:
        """Return what the user answers to the question; None where they give no answer."""
        out = display.make_room(_show(question))
        try:
            line = await self._read_line(out, PROMPTS[question.kind], is_shown=question.kind != "password")
            if line is None or question.kind == "password":
                out.write("\n")
        except asyncio.CancelledError:
            out.write(f"\n  {TOO_LATE}\n")
            raise
        finally:
            out.flush()
            display.go_on()
        if question.kind == "confirmation":
            return None if line is None else line.strip().lower() in ("y", "yes")
        return line

    async def _read_line(self, out: TextIO, prompt: str, *, is_shown: bool) -> str | None:
        # Nobody has agreed to anything by what was typed before it was asked.
        termios.tcflush(self._file, termios.TCIFLUSH)
        self._echo(is_on=is_shown)
        out.write(prompt)
        out.flush()
        loop = asyncio.get_running_loop()
        read: asyncio.Future[str | None] = loop.create_future()
        typed = b""

        def take() -> None:
            nonlocal typed
            piece = os.read(self._file, LINE_BYTES)
            typed += piece
            if read.done() or (piece and not typed.endswith(b"\n")):
                return
            read.set_result(typed.decode("utf-8", "replace").rstrip("\r\n") if typed else None)

        loop.add_reader(self._file, take)
        try:
            return await read
        finally:
            loop.remove_reader(self._file)
            self._echo(is_on=False)

    def _echo(self, *, is_on: bool) -> None:
        flags = termios.tcgetattr(self._file)
        if is_on:
            flags[_LOCAL_FLAGS] |= termios.ECHO
        else:
            flags[_LOCAL_FLAGS] &= ~termios.ECHO
        termios.tcsetattr(self._file, termios.TCSADRAIN, flags)


def _show(question: InputRequest) -> list[Row]:
    rows: list[Row] = [[], [Span("? ", "yellow"), Span(make_line(question.title), "bold")]]
    if question.message.strip():
        rows += show_block(question.message, FALLBACK.columns)
    if question.placeholder.strip():
        rows.append([Span(f"  {make_line(question.placeholder)}", "dim")])
    return rows
