"""Reads lines from a terminal with Prompt Toolkit. Between prompts, typed characters are not shown."""

import sys
import termios
import tty
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.output import create_output
from prompt_toolkit.output.plain_text import PlainTextOutput
from prompt_toolkit.utils import is_dumb_terminal

from callboard._cli.chat.visible import make_line
from callboard.calls import ALWAYS, show_default
from callboard_protocol import InputRequest

PROMPTS = {"confirmation": "  Yes or no? [y/N] ", "input": "  > ", "password": "  (not shown) > "}
ALWAYS_PROMPT = "  Yes, no, or always in this chat? [y/N/a] "
NOT_HIDDEN = "  This terminal cannot hide typed characters, so no password is asked for."


class Keyboard:
    """Reads lines that the user types. Prompts are written to `out`.

    In every prompt, Ctrl-C raises `KeyboardInterrupt`, and Ctrl-D `EOFError`.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._input = create_input(sys.stdin)
        self._lines = self._make_session(enable_suspend=True)

    async def read_line(self, prompt: str) -> str:
        """Return a line that the user types, with editing and history."""
        return await _read(self._lines, prompt)

    async def ask(self, question: InputRequest) -> bool | str | dict[str, str]:
        """Return the user's answer to a question.

        The answer to a form has a text for each field. The server converts the texts to values.
        """
        is_password = question.kind == "password"
        if is_password and is_dumb_terminal():
            print(NOT_HIDDEN, file=self._out)
            raise EOFError
        # Characters typed before the question appeared are not an answer to it.
        termios.tcflush(self._input.fileno(), termios.TCIFLUSH)
        clear_typeahead(self._input)
        # Not the session of `read_line`, because its history must not have answers and passwords.
        session = self._make_session(is_password=is_password)
        if question.kind == "form":
            required = question.form["required"]
            return {
                name: await _read(
                    session, f"  {describe_field(name, field, is_required=name in required)} > ", show_default(field)
                )
                for name, field in question.form["properties"].items()
            }
        line = await _read(session, ALWAYS_PROMPT if question.remember else PROMPTS[question.kind])
        if question.kind != "confirmation":
            return line
        word = line.strip().lower()
        return ALWAYS if question.remember and word in ("a", ALWAYS) else word in ("y", "yes")

    @contextmanager
    def hide_typing(self) -> Iterator[None]:
        """Turn off the echo of typed characters until the block ends, because they would disturb the drawing."""
        file = self._input.fileno()
        before = termios.tcgetattr(file)
        tty.setcbreak(file, termios.TCSADRAIN)
        try:
            yield
        finally:
            termios.tcsetattr(file, termios.TCSADRAIN, before)

    def _make_session(self, **options: Any) -> PromptSession[str]:
        output = PlainTextOutput(self._out) if is_dumb_terminal() else create_output(self._out)
        # Prompt Toolkit's prompt for dumb terminals ignores an output that is passed to the session.
        with create_app_session(self._input, output):
            return PromptSession(**options)


def describe_field(name: str, field: Mapping[str, Any], *, is_required: bool) -> str:
    """Return a line with the title of a form's field, its description and its possible values."""
    listed = field.get("items", field)
    options = listed.get("oneOf") or listed.get("anyOf") or []
    values = ", ".join(f"{number} {option['title']}" for number, option in enumerate(options, 1))
    if not values:
        values = "yes or no" if field["type"] == "boolean" else field.get("format", "")
    hints = "; ".join(filter(None, (field.get("description"), "" if is_required else "optional", values)))
    title = field.get("title") or name
    return make_line(f"{title} ({hints})" if hints else title)


async def _read(session: PromptSession[str], prompt: str, default: str = "") -> str:
    return await session.prompt_async(prompt, default=make_line(default), handle_sigint=False)
