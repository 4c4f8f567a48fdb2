"""Formats a tool call as rows of text: its name and arguments, and below them its progress or its result."""

import json
import textwrap
import time

from rich.text import Text

from callboard._cli.chat.answer import format_seconds
from callboard._cli.chat.files import describe_file
from callboard._cli.chat.visible import make_line, make_visible
from callboard.calls import EndedCall, RunningCall, StatusReport
from callboard_protocol import FAILED, ToolCallComplete, find_ending

BAR_CELLS = 16
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAMES_PER_SECOND = 10


def make_row(*parts: tuple[str, str]) -> Text:
    """Join texts with their styles to one row, which is cut at the width of the terminal."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def find_spinner_frame() -> tuple[str, str]:
    """Return the character of the spinner at this time, and its style."""
    return SPINNER[int(time.monotonic() * FRAMES_PER_SECOND) % len(SPINNER)], "yellow"


def describe_start(call: RunningCall | EndedCall, sign: tuple[str, str], is_verbose: bool) -> list[Text]:
    """Return the rows with a call's name and arguments, and with `is_verbose` its steps.

    `sign` is the character before the name, and its style.
    """
    label = ""
    if isinstance(call, EndedCall) and call.error_code and (ending := find_ending(call.error_code)) is not FAILED:
        label = ending.label
    names = (make_line(call.name), "from text" if call.is_from_text else "", label)
    title = (f" {' · '.join(filter(None, names))}", "bold")
    if not is_verbose:
        return [make_row(sign, title, (f"  {make_line(_format_arguments(call))}".rstrip(), "dim"))]
    steps = [_make_block(make_line(_format_step(step)), "dim") for step in call.steps]
    return [make_row(sign, title), _make_block(_format_arguments(call), "dim"), *steps]


def describe_running(call: RunningCall, is_verbose: bool) -> list[Text]:
    """Return the rows of a running call, with its progress."""
    progress = [("  ", "")]
    if call.steps:
        step = call.steps[-1]
        if step.progress is not None:
            filled = round(step.progress * BAR_CELLS / 100)
            progress += [("━" * filled, "green"), ("━" * (BAR_CELLS - filled), "dim"), (" ", "")]
        progress.append((f"{make_line(_format_step(step))}  ", "dim"))
    progress.append((format_seconds(call.clock.elapsed_ms / 1000), "dim"))
    return [*describe_start(call, find_spinner_frame(), is_verbose), make_row(*progress)]


def describe_ended(call: EndedCall, server_url: str, is_verbose: bool) -> list[Text]:
    """Return the rows of an ended call, with its result and its files. `server_url` is the base of relative URLs."""
    sign, style = ("✗", "red") if call.is_failed else ("–", "dim") if call.error_code else ("✓", "green")
    result_style = "red" if call.is_failed else "dim"
    took = f"{format_seconds(call.duration_ms / 1000)}  " if call.duration_ms is not None and call.has_run else ""
    url = call.end.result_url if isinstance(call.end, ToolCallComplete) else None
    result = f"{call.display_text} {url or ''}"
    rows = describe_start(call, (sign, style), is_verbose)
    if is_verbose:
        rows.append(_make_block(f"{took}{result}", result_style))
    else:
        rows.append(make_row((f"  {took}", "dim"), (make_line(result), result_style)))
    files = [describe_file(file, server_url) for file in call.files]
    files += ["a page, which Open WebUI shows"] * len(call.embeds)
    return [*rows, *(Text(f"  ⇩ {file}", "cyan") for file in files)]


def _make_block(text: str, style: str) -> Text:
    return Text(textwrap.indent(make_visible(text).rstrip(), "  "), style)


def _format_arguments(call: RunningCall | EndedCall) -> str:
    """Return the arguments on one line: `city="Oslo", days=2`."""
    arguments = call.start.tool_args
    if isinstance(arguments, str):
        return arguments
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())


def _format_step(step: StatusReport) -> str:
    percent = "" if step.progress is None else f"{step.progress:.0f}% "
    return f"{percent}{step.message}".strip()
