"""What many and large tool calls cost the browser: bytes over its socket, and time until the answer is finished.

Each way is watched in a real page of each version of Open WebUI. Callboard's server is a feed: what is measured is the
pipe, Open WebUI and the page.
"""

import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.async_api import Browser, Page, WebSocket, async_playwright

import install_pipe
import openwebui
from callboard_protocol import Event, Message
from tests.bench import story
from tests.bench.feeds import feed
from tests.bench.own_calls import own_calls
from tests.bench.report import Target, milliseconds, print_table, say
from tests.bench.webui import OpenWebUI, running
from tests.e2e.conftest import CHROMIUM_FLAGS, chromium
from tests.e2e.open_webui_page import Chat

HERE = Path(__file__).parent
VERSIONS = (openwebui.VERSION, "0.11.4", "0.9.6", "0.8.12")
FIFTY = 50
MAX_GROWTH = 1.5
SETTLE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Load:
    """So many calls in one answer, with results of that size and text between them."""

    name: str
    calls: int
    chars: int

    def events(self) -> Iterator[Event]:
        for number in range(self.calls):
            yield from story.call(number, 1, self.chars)
            yield Message(content=f"Step {number}.\n")


LOADS = (Load("20 calls, 100 kB each", 20, 100_000), Load("200 calls, 2 kB each", 200, 2_000))


@dataclass(slots=True)
class Traffic:
    """What came over the page's sockets: its `size` in bytes, and when each call was first seen with its result."""

    size: int = 0
    seen_at_seconds: dict[int, float] = field(default_factory=dict)

    def watch(self, page: Page) -> None:
        # Functions of their own: Playwright writes a mark upon the object of a method.
        page.on("websocket", lambda socket: self._watch_socket(socket))

    def _watch_socket(self, socket: WebSocket) -> None:
        socket.on("framereceived", lambda payload: self._read(payload))

    def _read(self, payload: str | bytes) -> None:
        text = payload.decode("utf-8", "replace") if isinstance(payload, bytes) else payload
        self.size += len(text)
        now = time.perf_counter()
        for number in re.findall(r"result (\d{4}) ", text):
            self.seen_at_seconds.setdefault(int(number), now)

    def growth(self) -> float | None:
        """Time per call of the last fifty over that of the first fifty; None for fewer than a hundred calls."""
        at = [self.seen_at_seconds[number] for number in sorted(self.seen_at_seconds)]
        if len(at) < 2 * FIFTY:
            return None
        return (at[-1] - at[-FIFTY]) / max(at[FIFTY - 1] - at[0], 1e-9)


@dataclass(frozen=True, slots=True)
class Cost:
    """One answer: seconds from the question sent until it is finished on screen."""

    seconds: float
    traffic: Traffic

    def row(self, version: str, load: Load, way: str) -> tuple[object, ...]:
        growth = self.traffic.growth()
        kilobytes = f"{self.traffic.size / 1000:,.0f}"
        return version, load.name, way, milliseconds(self.seconds), kilobytes, "" if growth is None else f"{growth:.2f}"


async def measure_browsing(folder: Path) -> list[Target]:
    """Prints the table; Callboard's time per call may not grow with the calls before it."""
    rows: list[tuple[object, ...]] = []
    targets: list[Target] = []
    for version in VERSIONS:
        home = folder / version
        home.mkdir()
        async with running(home, version) as webui, _browser() as browser:
            for load in LOADS:
                async for way, cost in _ways(home, webui, browser, version, load):
                    rows.append(cost.row(version, load, way))
                    growth = cost.traffic.growth()
                    if growth is not None and way.startswith("Callboard"):
                        what = f"{way}, {version}: last fifty calls beside the first"
                        # Of Open WebUI's own items the page draws all anew with each: that is not the pipe's to change.
                        aim = way.endswith("native")
                        targets.append(Target(what, growth, MAX_GROWTH, "times as long each", aim=aim))
    headings = ("version", "answer", "way", "finished ms", "socket kB", "last 50 ÷ first 50")
    print_table("Many and large calls in a real page", headings, rows)
    return targets


async def _ways(
    folder: Path, webui: OpenWebUI, browser: Browser, version: str, load: Load
) -> AsyncIterator[tuple[str, Cost]]:
    size = f"{load.calls}_{load.chars}"
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(feed(load.events(), lambda: None))
        models: dict[str, str] = {}
        renderings = ("details", "native") if tuple(map(int, version.split("."))) >= (0, 11, 4) else ("details",)
        for rendering in renderings:
            function_id = f"callboard_{rendering}_{size}"
            await webui.install(function_id, install_pipe.PIPE, {"CALLBOARD_URL": server.url, "RENDERING": rendering})
            models[f"Callboard, {rendering}"] = f"{function_id}.{story.MODEL}"
        blocks = folder / f"blocks_{size}.py"
        source = (HERE / "pipes" / "blocks.py").read_text("utf-8")
        blocks.write_text(source.replace("CALLS, CHARS = 0, 0", f"CALLS, CHARS = {load.calls}, {load.chars}"), "utf-8")
        await webui.install(f"blocks_{size}", blocks)
        models["blocks by events"] = f"blocks_{size}"
        models["Open WebUI's own tools"] = await stack.enter_async_context(own_calls(webui, load.calls, load.chars))
        for way, model in models.items():
            say(f"{version}: {load.name}: {way} …")
            yield way, await _watched(webui, browser, version, model, load)


async def _watched(webui: OpenWebUI, browser: Browser, version: str, model: str, load: Load) -> Cost:
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        await context.add_init_script(f"localStorage.setItem('token', {json.dumps(webui.token)})")
        page, traffic = await context.new_page(), Traffic()
        traffic.watch(page)
        chat = await Chat.prepare(page, webui.url, webui.notes, version)
        await chat.open(model)
        traffic.size = 0
        started = time.perf_counter()
        await chat.send("Tell it.")
        await chat.wait_until_finished(SETTLE_SECONDS)
        cost = Cost(time.perf_counter() - started, traffic)
        _check(await chat.chips(), await chat.text(), load)
        return cost
    finally:
        await context.close()


def _check(chips: object, text: str, load: Load) -> None:
    """A cheap way that shows nothing is none."""
    if not chips or f"Step {load.calls - 1}." not in text:
        raise AssertionError(f"{load.name}: the answer is not whole on screen: {text[-200:]!r}")


@asynccontextmanager
async def _browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_FLAGS)
        yield browser
        await browser.close()
