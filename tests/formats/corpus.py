"""The corpus of model outputs, with the text, reasoning and calls that each output means.

`tests/fixtures/model_output` has a file for each format and family, entries of:

    name        the special feature of the output
    output      the exact text of the model
    opened      true if the prompt has opened a thought
    content     the text for the user; omitted if it equals the output
    reasoning   the text that is shown as reasoning
    calls       name and arguments (`arguments_json` if TOML has no such value), or name and error code

All outputs were written for this project from the formats' specifications. ReAct and XML are read as formats that were
asked for. For all others, every syntax is read.
"""

import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from callboard.calls import Tool
from callboard_formats import ParsedCall, ReasoningPiece, StreamParser, TextPiece
from callboard_formats.table import ROWS

FOLDER = Path(__file__).parent.parent / "fixtures" / "model_output"

ASKED_FOR = ("react", "xml")
"""The syntaxes that a model is asked for; the others are found though nobody asked."""

_TITLES = {
    "react": "ReAct",
    "xml": "XML",
    "native_leak": "native, leaking into the text",
    "talking": "talk of calls, none meant",
    "harmony": "gpt-oss (harmony)",
    "ling": "Ling",
    "minicpm": "MiniCPM",
    "llama3": "Llama 3.1 to 3.3",
    "llama4": "Llama 4",
    "minimax_m3": "MiniMax M3",
    "lfm2": "LFM2",
    "dots": "dots",
    "k2_horizon": "K2 Horizon",
    "step3": "Step 3, Step-Audio 2",
}
FORMATS = tuple(sorted(path.stem for path in FOLDER.iterdir()))


def _tool(name: str, required: Sequence[str] = (), **properties: dict[str, Any]) -> Tool:
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return Tool(name, f"The tool {name}.", schema, lambda **_: "")


_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}
_STEP = {"type": "object", "properties": {"title": _TEXT, "done": {"type": "boolean"}}, "additionalProperties": False}

TOOLS = (
    _tool("search", ["query"], query=_TEXT, limit=_NUMBER, tags={"type": "array", "items": _TEXT}),
    _tool("weather", ["city"], city=_TEXT, unit={"type": "string", "enum": ["celsius", "fahrenheit"]}, days=_NUMBER),
    _tool("now"),
    _tool("write_file", ["path", "content"], path=_TEXT, content=_TEXT),
    _tool("plan", ["steps"], steps={"type": "array", "items": _STEP}, meta={"type": "object"}),
)
SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}


@dataclass(frozen=True)
class Meant:
    """The meaning of an output. A call is its name with its arguments or its error code."""

    content: str
    reasoning: str = ""
    calls: tuple[tuple[str, dict[str, Any] | str], ...] = ()


@dataclass(frozen=True)
class Entry:
    """One output of the corpus."""

    format: str
    name: str
    output: str
    meant: Meant = field(repr=False)
    opened: bool = False

    @property
    def calls_something(self) -> bool:
        """Whether a tool would run."""
        return any(isinstance(arguments, dict) for _, arguments in self.meant.calls)


@cache
def entries(format_name: str) -> tuple[Entry, ...]:
    """Return the entries of one file in order."""
    table = tomllib.loads((FOLDER / f"{format_name}.toml").read_bytes().decode())
    return tuple(_entry(format_name, one) for one in table["entry"])


def corpus() -> tuple[Entry, ...]:
    """Return the entries of all files."""
    return tuple(entry for name in FORMATS for entry in entries(name))


def _entry(format_name: str, one: dict[str, Any]) -> Entry:
    unknown = one.keys() - {"name", "output", "opened", "content", "reasoning", "calls"}
    assert not unknown, f"{format_name}.toml, {one.get('name')}: no such member: {unknown}"
    calls = tuple((call["name"], _arguments(call)) for call in one.get("calls", ()))
    meant = Meant(one.get("content", one["output"]), one.get("reasoning", ""), calls)
    return Entry(format_name, one["name"], one["output"], meant, one.get("opened", False))


def _arguments(call: dict[str, Any]) -> dict[str, Any] | str:
    if "error" in call:
        return str(call["error"])
    arguments: dict[str, Any] = json.loads(call["arguments_json"]) if "arguments_json" in call else call["arguments"]
    return arguments


def parser(entry: Entry) -> StreamParser:
    """Return a parser for the entry's format if the model is asked for it, otherwise for every syntax."""
    chosen = [entry.format] if entry.format in ASKED_FOR else None
    return StreamParser([tool.schema() for tool in TOOLS], chosen, thinking=entry.opened or None)


def meaning(entry: Entry, pieces: Iterable[str]) -> Meant:
    """Return the meaning of an output of `entry` that arrives in these pieces."""
    parsing = parser(entry)
    shown = [one for piece in pieces for one in parsing.feed(piece)] + parsing.finish()
    content = "".join(one.text for one in shown if isinstance(one, TextPiece))
    reasoning = "".join(one.text for one in shown if isinstance(one, ReasoningPiece))
    return Meant(content, reasoning, tuple(meant(call) for call in parsing.calls))


def meant(call: ParsedCall) -> tuple[str, dict[str, Any] | str]:
    """Return the name of a call with its arguments or its error code."""
    return call.name, call.error_code or call.arguments or {}


def cut(text: str, *places: int) -> list[str]:
    """Return `text` cut at these places."""
    return [text[start:end] for start, end in pairwise((0, *places, len(text)))]


def table() -> str:
    """Return the number of outputs that test each format as a Markdown table for the documentation."""
    lines = ["| format | outputs | call a tool | call nothing | of these refused |", "| --- | --: | --: | --: | --: |"]
    for name in FORMATS:
        title = _TITLES.get(name) or ", ".join(row.title for row in ROWS if row.name == name)
        every = entries(name)
        calling = sum(entry.calls_something for entry in every)
        refused = sum(bool(entry.meant.calls) and not entry.calls_something for entry in every)
        lines.append(f"| {title} | {len(every)} | {calling} | {len(every) - calling} | {refused} |")
    return "\n".join(lines) + "\n"
