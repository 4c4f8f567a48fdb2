"""What reading a model's answer costs for each token, beside the same stream with nothing to read it.

An answer of many tokens with a few calls in it, as each format writes them; prose, code, JSON and tables in
every format; and hostile texts, of which the exponent is told with which the time grows. The deltas are
made beforehand, and only what the reader does is measured.
"""

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

from callboard._formats import (
    Format,
    FormatChoice,
    ReasoningPiece,
    TextPiece,
    ToolFormat,
)
from callboard.calls import tool
from callboard.models import ModelDelta, TextDelta, ToolCallDelta
from callboard_formats.formats import SYNTAXES
from tests.bench.report import Target, print_table
from tests.bench.size import FULL, SMOKE, Size
from tests.formats.test_scanner import LONG, scan

TOKENS = {FULL: 20_000, SMOKE: 500}
CHARS_PER_TOKEN = 4
REPETITIONS = {FULL: 9, SMOKE: 1}
FASTEST_OF = {FULL: 3, SMOKE: 1}
MAX_MICROSECONDS = 5.0
MAX_EXPONENT = 1.3
MAX_SECONDS = 10.0
"""The most that a megabyte of hostile text may take; the quickest model takes a minute to write it."""
OF_A_KIND = {FULL: 4_000, SMOKE: 100}
FORMATS: dict[Size, Sequence[ToolFormat]] = {FULL: get_args(ToolFormat), SMOKE: ("native", "auto", "react")}
"""At the smallest size few: a format takes a while to be compiled."""
HOSTILE_CHARS = {FULL: None, SMOKE: 8_000}
"""How much of the hostile texts is read; None: all, a megabyte."""
KINDS = {
    "prose": "The tempest rises on the northern coast; the watch (two men, no more) is changed. **Note:** go.\n\n- a\n",
    "code": "def f(a, b):\n    return [x for x in a if x < b]\n\nclass A:\n    y = {'k': [1, 2]}\n```\nls | wc\n```\n",
    "JSON": '{\n  "id": 17,\n  "tags": ["a", "b"],\n  "inner": {"x": 1.5, "y": null, "text": "storms"}\n}\n',
    "tables": "| a | b | c |\n|---|---|---|\n| 1 | 2 | x < y |\n| `code` | **bold** | [link](x) |\n",
}

PROSE = (
    "The tempest rises on the northern coast, and every sail is taken in; the watch (two men, no more) is changed "
    "at eight. **Note:** the tool shed is locked.\n\n- first, the ropes\n- then the sails\n\n"
    "```python\nprint('ready')\n```\n"
)
ARGUMENTS = '{"query": "storms on the northern coast", "limit": 5}'
CALLS = 5


@tool
async def search(query: str, limit: int = 3) -> str:
    """Searches."""
    return f"{limit} {query}"


@dataclass(frozen=True, slots=True)
class Way:
    """An answer as one format's models stream it; without a format nobody reads it."""

    name: str
    deltas: Sequence[ModelDelta]
    format: Format | None = None
    calls: int = CALLS


def ways(count: int) -> list[Way]:
    """Each answer beside the same deltas with no handler."""
    native = [*tokens(count, PROSE), *native_calls()]
    react = tokens(count, PROSE, f"Action: search\nAction Input: {ARGUMENTS}\n" * CALLS)
    xml = tokens(count, PROSE, f'<tool_call>\n{{"name": "search", "arguments": {ARGUMENTS}}}\n</tool_call>\n' * CALLS)
    return [
        Way("no handler, native deltas", native),
        Way("native", native, Format("native")),
        Way("auto", native, Format()),
        Way("rescue", native, Format("rescue")),
        Way("no handler, react deltas", react),
        Way("react", react, Format("react")),
        Way("xml", xml, Format("xml")),
    ]


def tokens(count: int, prose: str, end: str = "") -> list[ModelDelta]:
    """So many text deltas of one token each, `end` last."""
    chars = count * CHARS_PER_TOKEN - len(end)
    text = (prose * (chars // len(prose) + 1))[:chars] + "\n" + end
    return [TextDelta(text[at : at + CHARS_PER_TOKEN]) for at in range(0, len(text), CHARS_PER_TOKEN)]


def native_calls() -> list[ModelDelta]:
    deltas: list[ModelDelta] = []
    for index in range(CALLS):
        deltas.append(ToolCallDelta(index, f"call_{index}", "search", ""))
        deltas += [
            ToolCallDelta(index, arguments=ARGUMENTS[at : at + CHARS_PER_TOKEN])
            for at in range(0, len(ARGUMENTS), CHARS_PER_TOKEN)
        ]
    return deltas


async def measure_parsing(folder: Path, size: Size) -> list[Target]:
    """Prints the table; native, auto and react are judged."""
    rows = []
    overheads = {}
    bare = 0.0
    for way in ways(TOKENS[size]):
        seconds = sorted(measure(way) for _ in range(REPETITIONS[size]))
        each = statistics.median(seconds) / len(way.deltas) * 1e6
        if way.format is None:
            bare = each
        else:
            overheads[way.name] = each - bare
        overhead = f"{overheads[way.name]:.2f}" if way.name in overheads else ""
        rows.append(
            (way.name, f"{len(way.deltas):,}", f"{each:.2f}", f"{seconds[0] / len(way.deltas) * 1e6:.2f}", overhead)
        )
    print_table(
        f"Reading an answer of {TOKENS[size]:,} tokens with {CALLS} calls",
        ("way", "deltas", "µs a token", "fastest", "overhead"),
        rows,
    )
    tokens_read = [
        Target(f"reading a token, {name}", overheads[name], MAX_MICROSECONDS, "µs")
        for name in ("native", "auto", "react")
    ]
    hostile = {name: text[: HOSTILE_CHARS[size]] for name, text in LONG.items()}
    times = FASTEST_OF[size]
    return [
        *tokens_read,
        *measure_kinds(FORMATS[size], OF_A_KIND[size], times),
        *measure_growth(hostile, times),
        *(
            Target(f"reading 1 MB of {name}", fastest(times, partial(scan, text, 0, SYNTAXES)), MAX_SECONDS, "s")
            for name, text in hostile.items()
        ),
    ]


def measure_kinds(formats: Sequence[ToolFormat], count: int, times: int) -> list[Target]:
    """Prints what a token of each kind of text costs in each format, in the answer and in a thought.

    The dearest of each format is judged.
    """
    rows = []
    targets = []
    for name in formats:
        costs = [
            cost(FormatChoice(name).for_name("a-model"), [*begun, *tokens(count, text)], times)
            for begun in ((), (TextDelta("<think>"),))
            for text in KINDS.values()
        ]
        rows.append((name, *(f"{each:.2f}" for each in costs)))
        targets.append(Target(f"reading a token, {name}", max(costs), MAX_MICROSECONDS, "µs"))
    columns = (*KINDS, *(f"{kind}, thought" for kind in KINDS))
    print_table("Reading a token of text without calls, in µs", ("format", *columns), rows)
    return targets


def cost(tool_format: Format, deltas: Sequence[ModelDelta], times: int) -> float:
    """Microseconds of the processor for one delta."""
    return fastest(times, lambda: read_with(tool_format, deltas)) / len(deltas) * 1e6


def measure_growth(texts: Mapping[str, str], times: int) -> list[Target]:
    """Prints the exponent with which the time grows for hostile texts: 1 is linear, 2 the square."""
    rows = []
    targets = []
    for name, text in texts.items():
        small, large = (
            fastest(times, partial(scan, text[:chars], 64, SYNTAXES)) for chars in (len(text) // 8, len(text))
        )
        exponent = math.log(large / small, 8)
        rows.append((name, f"{small:.3f}", f"{large:.3f}", f"{exponent:.2f}"))
        targets.append(Target(f"growth for {name}", exponent, MAX_EXPONENT, ""))
    print_table("Reading hostile text with every format", ("text", "s, an eighth", "s", "exponent"), rows)
    return targets


def fastest(times: int, read: Callable[[], object]) -> float:
    """Seconds of the processor for one reading, the fastest of so many."""

    def once() -> float:
        gc.collect()
        started = time.process_time()
        read()
        return time.process_time() - started

    return min(once() for _ in range(times))


def measure(way: Way) -> float:
    """Seconds for one answer. Raises where it was not read as it was meant."""
    gc.collect()
    started = time.process_time()
    read = read_with(way.format, way.deltas) if way.format else pass_on(way.deltas)
    took = time.process_time() - started
    if way.format and read != way.calls:
        raise AssertionError(f"{way.name}: {read} calls were read of {way.calls}")
    return took


def pass_on(deltas: Sequence[ModelDelta]) -> int:
    """What a loop without a handler does: look at each delta and hand its text on."""
    shown: list[str] = []
    emit: Callable[[str], None] = shown.append
    for delta in deltas:
        match delta:
            case TextDelta():
                emit(delta.text)
            case _:
                pass
    return len(shown)


def read_with(tool_format: Format, deltas: Sequence[ModelDelta]) -> int:
    """The same with a handler; returns how many calls it found."""
    reader = tool_format.reader([search], lambda given: given or "new")
    shown: list[str] = []
    emit: Callable[[str], None] = shown.append
    for delta in deltas:
        for piece in reader.feed(delta):
            match piece:
                case TextPiece() | ReasoningPiece():
                    emit(piece.text)
                case _:
                    pass
    reader.finish()
    return len(reader.calls())
