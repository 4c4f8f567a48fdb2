"""Input from a terminal, with Prompt Toolkit. Between prompts, typed characters are not shown."""

import os
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.output import create_output
from prompt_toolkit.output.plain_text import PlainTextOutput
from prompt_toolkit.utils import is_dumb_terminal

from callboard._cli.chat.turn import Interrupted
from callboard_protocol import InputRequest

PROMPTS = {"confirmation": "  Yes or no? [y/N] ", "input": "  > ", "password": "  (not shown) > "}
NOT_HIDDEN = "  This terminal cannot hide typed characters, so no password is asked for."
_LOCAL_FLAGS = 3


class Keyboard:
    """Reads what the user types; prompts are written to `out`."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._input = create_input(sys.stdin)

    async def read_line(self, prompt: str) -> str | None:
        """Return a line, typed with editing and history; None on Ctrl-D. Ctrl-C raises `KeyboardInterrupt`."""
        return await _read(self._lines, prompt)

    async def ask(self, question: InputRequest) -> bool | str | None:
        """Return the user's answer to a question; None on Ctrl-D. Ctrl-C raises `Interrupted`."""
        if question.kind == "password" and is_dumb_terminal():
            print(NOT_HIDDEN, file=self._out)
            return None
        # Characters typed before the question appeared are not an answer to it.
        termios.tcflush(self._input.fileno(), termios.TCIFLUSH)
        clear_typeahead(self._input)
        is_password = question.kind == "password"
        session = self._make_session(is_password=is_password, interrupt_exception=Interrupted)
        line = await _read(session, PROMPTS[question.kind])
        if question.kind == "confirmation":
            return None if line is None else line.strip().lower() in ("y", "yes")
        return line

    @cached_property
    def _lines(self) -> PromptSession[str]:
        return self._make_session(enable_suspend=True)

    def _make_session(self, **options: Any) -> PromptSession[str]:
        # Not made earlier, because making it may write escape sequences.
        output = PlainTextOutput(self._out) if is_dumb_terminal() else create_output(self._out)
        # The prompt for dumb terminals ignores an output that is given to the session itself.
        with create_app_session(self._input, output):
            return PromptSession(**options)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Turn the echo of typed characters off until the block ends, because they would disturb the drawing."""
        file = self._input.fileno()
        if os.tcgetpgrp(file) != os.getpgrp():
            # The system would stop a background process that changes the terminal.
            yield
            return
        before = termios.tcgetattr(file)
        silent = termios.tcgetattr(file)
        silent[_LOCAL_FLAGS] &= ~termios.ECHO
        termios.tcsetattr(file, termios.TCSADRAIN, silent)
        try:
            yield
        finally:
            termios.tcsetattr(file, termios.TCSADRAIN, before)


async def _read(session: PromptSession[str], prompt: str) -> str | None:
    try:
        return await session.prompt_async(prompt, handle_sigint=False)
    except EOFError:
        return None
