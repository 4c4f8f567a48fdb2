"""The tools of the demo agent. They need no network, and each shows another kind of call.

They really run, and take as long as their argument `seconds` says.
"""

import asyncio
import base64
import struct
import zlib
from typing import Annotated, Any

from pydantic import Field

from callboard.calls import ToolContext, ToolResult, tool
from callboard.errors import ToolError
from callboard_protocol import Source

IMAGE_STEPS = ("Reading the prompt", "Sketching", "Painting", "Adding light", "Finishing")
BIG_CHARS = 200_000

NASTY = (
    "</details><img src=x onerror=\"document.title='pwned'\"> \"double\" 'single' `tick` ```fence\n"
    "U+2028:\u2028 U+2029:\u2029 U+0085:\u0085 {{user}} {{char}} <think>not a thought</think> "
    '<details type="tool_calls" done="false"> &lt;b&gt; 🎭 \\u0000 </summary>'
)
"""Text that breaks naive renderers: closing tags, quotes, fences, line separators, placeholders."""

ARCHIVE = (
    ("The Globe", "The Globe burned down in 1613, during Henry VIII."),
    ("The Rose", "The Rose was found again in 1989, under an office block."),
)

CLOCK = (
    # Without a color scheme, black text would be on Open WebUI's dark background in dark mode.
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
    """Gives back a text full of what breaks pages that show it carelessly.

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


@tool(requires_confirmation=True)
async def sell_ticket(play: str, seats: int) -> str:
    """Sells tickets; the user is asked first.

    Args:
        play: The play's name.
        seats: How many seats.
    """
    return f"{seats} seats for {play} are sold."


@tool(requires_confirmation=True)
async def delete_draft(title: str) -> str:
    """Deletes a draft; the user is asked first.

    Args:
        title: The draft's title.
    """
    return f"'{title}' is deleted. (The demo keeps no drafts: nothing is lost.)"


def paint_dusk(width: int) -> bytes:
    """Return a PNG (https://www.w3.org/TR/png/) of an evening sky with stars."""
    rows = bytearray()
    for y in range(width):
        rows.append(0)  # no filter
        for x in range(width):
            # The noise makes the file as large as a real picture, because it cannot be compressed.
            star = (x * 7919 + y * 104_729 + x * y) % 251
            rows += bytes((30 + 150 * y // width, 20 + 60 * y // width, 90 + star % 64))
    header = struct.pack(">IIBBBBB", width, width, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows), 1)), (b"IEND", b""))
    framed = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)
