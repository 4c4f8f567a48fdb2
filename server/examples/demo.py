"""The built-in demo agent, which shows every kind of tool call without a model.

A scripted model calls real tools, which need no network. Words in the prompt choose scenes; without such a word, the
agent shows `FULL_RANGE`. The script finds its position by counting the rounds of calls since the last user message,
so it also shows which earlier calls the server sends to a model.
"""

import asyncio
import base64
import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from callboard import Agent, Skill, ToolContext, ToolError, ToolResult, tool
from callboard.models import (
    ChatDict,
    ModelDelta,
    ModelRequest,
    Pause,
    ReasoningDelta,
    ScriptedModel,
    TextDelta,
    ToolCallDelta,
)
from callboard.models.messages import content_text
from callboard.models.scripted import task_answer, typed, user_text
from callboard_protocol import Source

IMAGE_STEPS = ("Reading the prompt", "Sketching", "Painting", "Adding light", "Finishing")
BIG_CHARS = 200_000

NASTY = (
    "</details><img src=x onerror=\"document.title='pwned'\"> \"double\" 'single' `tick` ```fence\n"
    "U+2028:\u2028 U+2029:\u2029 U+0085:\u0085 {{user}} {{char}} <think>not a thought</think> "
    '<details type="tool_calls" done="false"> &lt;b&gt; 🎭 \\u0000 </summary>'
)
"""Text that breaks renderers without escaping: closing tags, quotes, fences, line separators, placeholders."""

ARCHIVE = (
    ("The Globe", "The Globe burned down in 1613, during Henry VIII."),
    ("The Rose", "The Rose was found again in 1989, under an office block."),
)

CLOCK = (
    # Without a colour scheme, dark mode shows black text on Open WebUI's dark background.
    "<!DOCTYPE html><title>Stage clock</title><meta name=color-scheme content='light dark'>"
    "<body style='font:2em sans-serif;background:Canvas;color:CanvasText'>Curtain up in <b id=c>3</b>"
    "<script>setInterval(()=>{c.textContent=Math.max(0,c.textContent-1)},1000)</script>"
)

_SKIES = ("clear", "cloudy", "light rain", "windy")

Seconds = Annotated[float, Field(ge=0, le=60)]


@tool
async def get_weather(city: str, seconds: Seconds = 1.0) -> dict[str, Any]:
    """Looks up today's weather in a city.

    Args:
        city: The city's name.
        seconds: How long the lookup takes.
    """
    await asyncio.sleep(seconds)
    # Invented, but always the same for a city.
    seed = sum(map(ord, city))
    return {"city": city, "temperature_c": seed % 25 + 5, "sky": _SKIES[seed % len(_SKIES)]}


@tool
async def generate_image(context: ToolContext, prompt: str, seconds: Seconds = 3.0) -> str:
    """Paints a picture, step by step.

    Args:
        prompt: What the picture shows.
        seconds: How long the painting takes.
    """
    for position, step in enumerate(IMAGE_STEPS):
        await context.status("processing", step, progress=100 * position / len(IMAGE_STEPS))
        await asyncio.sleep(seconds / len(IMAGE_STEPS))
    await context.status("processing", "Done", progress=100)
    return f"A picture of {prompt}, painted in {len(IMAGE_STEPS)} steps. (The demo paints with words only.)"


@tool
async def book_table(restaurant: str, guests: int, time: str, seconds: Seconds = 0.5) -> str:
    """Books a table at a restaurant.

    Args:
        restaurant: The restaurant's name.
        guests: How many people come.
        time: When, as HH:MM.
        seconds: How long the restaurant takes to answer.
    """
    await asyncio.sleep(seconds)
    raise ToolError(f"{restaurant} has no table for {guests} at {time}: fully booked tonight.")


@tool
async def read_archive(title: str, characters: int = BIG_CHARS) -> str:
    """Reads a long text from the theatre's archive.

    Args:
        title: The text's title.
        characters: How many characters to read.
    """
    lines = (f"{number:05d}  {title}: all the world's a stage.\n" for number in range(1, characters))
    text: list[str] = []
    length = 0
    while length < characters:
        line = next(lines)
        text.append(line)
        length += len(line)
    return "".join(text)[:characters]


@tool
async def echo_nasty(text: str) -> str:
    """Return markup that breaks pages which do not escape results.

    Args:
        text: Any text; it comes first in the result.
    """
    return f"{text}\n{NASTY}"


@tool
async def draw_picture(width: Annotated[int, Field(ge=1, le=512)] = 256) -> ToolResult:
    """Draws a picture of a stage at dusk.

    Args:
        width: The picture's width and height in pixels.
    """
    url = f"data:image/png;base64,{base64.b64encode(paint_dusk(width)).decode()}"
    picture = {"type": "image", "url": url, "name": "dusk.png", "content_type": "image/png"}
    return ToolResult(f"A picture, {width} by {width} pixels; the user sees it.", files=(picture,))


@tool
async def search_archive(context: ToolContext, query: str) -> ToolResult:
    """Searches the theatre's archive.

    Args:
        query: What to look for.
    """
    items = []
    sources = []
    for title, text in ARCHIVE:
        number = context.sources.next()
        url = f"https://archive.example/{title.lower().replace(' ', '-')}"
        items.append({"source_number": number, "title": title, "url": url, "text": f"{text} ({query})"})
        about = {"source": url, "name": title, "source_number": number}
        sources.append(Source(source={"name": title, "url": url}, document=(text,), metadata=(about,)))
    return ToolResult(data=items, sources=tuple(sources))


@tool
async def show_clock() -> ToolResult:
    """Shows the stage clock as a small page."""
    return ToolResult("The clock is on the page; the user sees it.", embeds=(CLOCK,))


@tool(title="Sell tickets", requires_confirmation=True)
async def sell_ticket(play: str, seats: int) -> str:
    """Sells tickets; the user is asked first.

    Args:
        play: The play's name.
        seats: How many seats.
    """
    return f"{seats} seats for {play} are sold."


@tool(title="Delete a draft", requires_confirmation=True)
async def delete_draft(title: str) -> str:
    """Deletes a draft; the user is asked first.

    Args:
        title: The draft's title.
    """
    return f"'{title}' is deleted. (The demo keeps no drafts: nothing is lost.)"


def paint_dusk(width: int) -> bytes:
    """Return a PNG (https://www.w3.org/TR/png/) of an evening sky with stars, `width` pixels wide and high."""
    rows = bytearray()
    for y in range(width):
        rows.append(0)  # no filter
        for x in range(width):
            # The stars are noise, which compresses badly: the file is as large as that of a real picture.
            star = (x * 7919 + y * 104_729 + x * y) % 251
            rows += bytes((30 + 150 * y // width, 20 + 60 * y // width, 90 + star % 64))
    header = struct.pack(">IIBBBBB", width, width, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows), 1)), (b"IEND", b""))
    framed = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


ARGUMENTS_PIECE_CHARS = 12
FIRST_WORDS = 8


@dataclass(frozen=True, slots=True)
class Scene:
    """One round: text before the calls, the calls (tool name and arguments), text after them.

    `thought` is the model's reasoning before the first text.
    """

    before: str
    calls: Sequence[tuple[str, Mapping[str, Any]]]
    after: str
    thought: str = ""


OUTCOME = "[outcome]"
"""Placeholder for the outcome of a call that asks the user first."""

WEATHER = Scene(
    "Two lookups at once. One of them takes longer, and each shows its result as soon as it ends.\n\n",
    (("get_weather", {"city": "Lisbon", "seconds": 1.0}), ("get_weather", {"city": "Oslo", "seconds": 2.5})),
    "Both cities have answered.",
)
SLOW = Scene(
    "Now a slow call, which shows its progress while it runs.\n\n",
    (("generate_image", {"prompt": "an empty stage at dawn", "seconds": 3.0}),),
    "The picture is ready.",
)
FAIL = Scene(
    "And a call that fails: it turns red, and the run goes on.\n\n",
    (("book_table", {"restaurant": "The Green Room", "guests": 4, "time": "19:30", "seconds": 1.0}),),
    "I could not book the table: the restaurant is fully booked. I suggest a later time or another restaurant.",
)
SCENES: Mapping[str, Scene] = {
    "slow": SLOW,
    "fail": FAIL,
    "big": Scene(
        f"A result of {BIG_CHARS:,} characters. The page shows only a part of it; the server stores all of it.\n\n",
        (("read_archive", {"title": "As You Like It", "characters": BIG_CHARS}),),
        "That was long. I have read every line.",
    ),
    "nasty": Scene(
        f"Text and a result that break pages which do not escape them: {NASTY}\n\n"
        "And a code fence that is never closed:\n\n```python\nprint('still open')\n",
        (("echo_nasty", {"text": NASTY}),),
        f"If you can read this and the page's title has not changed, all is well. Once more: {NASTY}",
    ),
    "think": Scene(
        "I have thought about it; my thoughts are folded above.\n\n",
        (("get_weather", {"city": "Oslo", "seconds": 1.0}),),
        "Now I know.",
        "The user wants to see me think. I should look at the weather first: <b>Oslo</b>, not Lisbon. ",
    ),
    "picture": Scene(
        "A tool can give back a picture.\n\n", (("draw_picture", {"width": 256}),), "It is above, under the call."
    ),
    "page": Scene("A tool can give back a page.\n\n", (("show_clock", {}),), "The page counts down."),
    "cite": Scene(
        "I look it up.\n\n",
        (("search_archive", {"query": "old theatres"}),),
        "The Rose was found again in 1989 [second]; the Globe had burned down in 1613 [first].",
    ),
    "approve": Scene(
        "Some tools ask you before they run.\n\n",
        (("sell_ticket", {"play": "As You Like It", "seats": 2}),),
        OUTCOME,
    ),
    "delete": Scene(
        "I ask you before I delete anything.\n\n",
        (("delete_draft", {"title": "As You Like It, first draft"}),),
        OUTCOME,
    ),
}
"""Scenes by the word that chooses them in the prompt."""

FULL_RANGE = (WEATHER, SLOW, FAIL)
EVERYTHING = (WEATHER, *(SCENES[word] for word in ("slow", "think", "picture", "page", "cite", "fail", "delete")))
"""The scenes for the word "everything": one of each kind, except scenes that try to break pages."""

ICON_PIXELS = 48
SUGGESTIONS = ("Show me everything", "Something slow", "Ask me before you delete", "A picture")
HINT = (
    f"\n\nWords to try: {', '.join(f'`{word}`' for word in SCENES)}, alone or together. "
    "And `remember` makes me list the earlier calls of this chat."
)


def demo_agent(pace: float = 1.0) -> Agent:
    """Return the demo agent; `pace` multiplies all waiting times, so 0 never waits."""
    tools = (
        get_weather,
        generate_image,
        book_table,
        read_archive,
        echo_nasty,
        draw_picture,
        show_clock,
        search_archive,
        sell_ticket,
        delete_draft,
    )
    skill = Skill("demo", "Shows every kind of tool call.", tools=tools)
    model = ScriptedModel(lambda request: demo_script(request, pace), name="demo", pace=pace)
    description = "Shows what tool calls look like; needs no model. Ask it anything, or say: slow, fail, big, nasty."
    icon = f"data:image/png;base64,{base64.b64encode(paint_dusk(ICON_PIXELS)).decode()}"
    return Agent("demo", description, (skill,), name="Demo", model=model, suggestions=SUGGESTIONS, icon=icon)


def demo_script(request: ModelRequest, pace: float = 1.0) -> Iterator[ModelDelta | Pause]:
    """Yield the next text and calls of the demo after these messages."""
    if (answer := task_answer(request)) is not None:
        yield TextDelta(answer)
        return
    asked = user_text(request)
    if _has_word("remember", asked):
        yield from typed(_list_earlier_calls(request.messages))
        return
    if _has_word("everything", asked):
        scenes = list(EVERYTHING)
    else:
        scenes = [scene for word, scene in SCENES.items() if _has_word(word, asked)] or list(FULL_RANGE)
    played = _count_rounds(request.messages)
    if played:
        yield from typed(_fill_placeholders(scenes[min(played, len(scenes)) - 1].after, request.messages))
    if played >= len(scenes) or not request.tools:
        yield from typed(HINT)
        return
    if played:
        yield TextDelta("\n\n")
    for word in typed(scenes[played].thought):
        yield ReasoningDelta(word.text) if isinstance(word, TextDelta) else word
    yield from typed(scenes[played].before)
    for index, (name, arguments) in enumerate(scenes[played].calls):
        yield from _stream_call(index, f"call_{played}_{index}", name, _scale_seconds(arguments, pace))


def _stream_call(index: int, call_id: str, name: str, arguments: Mapping[str, Any]) -> Iterator[ModelDelta]:
    """Yield a call as endpoints stream it: the name first, then the arguments in pieces."""
    yield ToolCallDelta(index=index, id=call_id, name=name, arguments="")
    text = json.dumps(arguments, ensure_ascii=False)
    for start in range(0, len(text), ARGUMENTS_PIECE_CHARS):
        yield ToolCallDelta(index=index, arguments=text[start : start + ARGUMENTS_PIECE_CHARS])


def _scale_seconds(arguments: Mapping[str, Any], pace: float) -> dict[str, Any]:
    return {name: round(value * pace, 3) if name == "seconds" else value for name, value in arguments.items()}


def _has_word(word: str, text: str) -> bool:
    return re.search(rf"\b{word}\b", text, re.IGNORECASE) is not None


def _count_rounds(messages: Sequence[ChatDict]) -> int:
    """Return the number of rounds with calls since the last user message."""
    played = 0
    for message in reversed(messages):
        if message.get("role") == "user":
            break
        played += bool(message.get("tool_calls"))
    return played


def _fill_placeholders(text: str, messages: Sequence[ChatDict]) -> str:
    """Replace placeholders in the text by the last result: the numbers of its two sources, or whether its call ran."""
    result = content_text(messages[-1].get("content"))
    numbers = re.findall(r'"source_number":(\d+)', result)
    for word, number in zip(("[first]", "[second]"), numbers, strict=False):
        text = text.replace(word, f"[source{number}]")
    refusal = result.removeprefix("Error: ").partition(". ")[0].rstrip(".")
    return text.replace(OUTCOME, f"{refusal}." if result.startswith("Error: ") else "You agreed, and it ran.")


def _list_earlier_calls(messages: Sequence[ChatDict]) -> str:
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    if not calls:
        return f"I remember no tool call in this chat yet. Ask me anything first.{HINT}"
    results = {
        message.get("tool_call_id"): content_text(message.get("content"))
        for message in messages
        if message.get("role") == "tool"
    }
    lines = [f"I remember {len(calls)} tool {'call' if len(calls) == 1 else 'calls'}:\n"]
    for call in calls:
        words = " ".join(results.get(call["id"], "no result").split()[:FIRST_WORDS])
        # As code, because a result may contain Markdown.
        lines.append(f"- `{call['function']['name']}`: `{words.replace('`', chr(39))}`")
    return "\n".join(lines)
