"""What many and large tool calls cost the browser: bytes over its socket, and time until the answer is finished.

Each way is watched in a real page of each version of Open WebUI. Callboard's server is a feed: what is measured is the
pipe, Open WebUI and the page.
"""

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path

from playwright.async_api import Browser, Page, WebSocket, async_playwright

import install_pipe
import openwebui
from callboard_protocol import Event, Message
from tests.bench import story
from tests.bench.delays import measure_delays
from tests.bench.feeds import feed
from tests.bench.own_calls import own_calls
from tests.bench.report import FULL, SMOKE, Size, Target, milliseconds, print_table, say
from tests.bench.webui import OpenWebUI, at_hand, running
from tests.browsers import CHROMIUM_FLAGS, chromium
from tests.e2e.open_webui_page import Chat

VERSIONS = {FULL: (openwebui.VERSION, "0.11.4"), SMOKE: (openwebui.VERSION,)}
MAX_GROWTH = 1.5
SETTLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Load:
    """So many calls in one answer, with results of that size and a line of text after each, fed with those pauses."""

    name: str
    calls: int
    chars: int
    pause_seconds: float = 0

    def events(self) -> Iterator[Event]:
        for number in range(self.calls):
            yield from story.call(number, 1, self.chars)
            yield Message(content=f"Step {number}.\n")


LOADS = {
    FULL: (
        Load("20 calls, 100 kB each", 20, 100_000),
        Load("200 calls, 2 kB each", 200, 2_000),
        # Four events a call. What is told as fast as it can be reaches the page at a few beats.
        Load("200 calls, 2 kB each, one every 100 ms", 200, 2_000, 0.025),
    ),
    SMOKE: (Load("4 calls, 2 kB each", 4, 2_000), Load("20 calls, 2 kB each, one every 100 ms", 20, 2_000, 0.025)),
}
# When each line of the answer was first on screen.
NOTE_LINES = """
window.lineSeen = [];
new MutationObserver(() => {
    for (const [, number] of (document.body?.textContent ?? "").matchAll(/Step (\\d+)\\./g))
        window.lineSeen[Number(number)] ??= performance.now();
}).observe(document, {subtree: true, childList: true, characterData: true});
"""


@dataclass(slots=True)
class Traffic:
    """What came over the page's sockets: its `size` in bytes."""

    size: int = 0

    def watch(self, page: Page) -> None:
        # Functions of their own: Playwright writes a mark upon the object of a method.
        page.on("websocket", lambda socket: self._watch_socket(socket))

    def _watch_socket(self, socket: WebSocket) -> None:
        socket.on("framereceived", lambda payload: self._count(payload))

    def _count(self, payload: str | bytes) -> None:
        self.size += len(payload)


@dataclass(frozen=True, slots=True)
class Cost:
    """One answer: seconds from the question sent until it is finished on screen, and bytes over the socket.

    `seconds` are infinite where the page still shows it as running after `SETTLE_SECONDS`.
    `growth`: time per call of the last quarter over that of the first, on screen; None where calls are not paced.
    """

    seconds: float
    size: int
    growth: float | None

    def row(self, version: str, load: Load, way: str) -> tuple[object, ...]:
        growth = "" if self.growth is None else f"{self.growth:.2f}"
        finished = "never" if self.seconds == inf else milliseconds(self.seconds)
        return version, load.name, way, finished, f"{self.size / 1000:,.0f}", growth


async def measure(folder: Path, size: Size) -> list[Target]:
    """Prints the table; Callboard's time per call may not grow with the calls before it."""
    rows: list[tuple[object, ...]] = []
    targets: list[Target] = []
    for version in at_hand(VERSIONS[size], size):
        home = folder / version
        home.mkdir()
        async with running(home, version) as webui, _browser() as browser:
            for load in LOADS[size]:
                async for way, cost in _ways(webui, browser, version, load):
                    rows.append(cost.row(version, load, way))
                    if cost.seconds == inf and way.startswith("Callboard"):
                        targets.append(Target(f"{way}, {version}: {load.name}", inf, SETTLE_SECONDS, "s to finished"))
                    if cost.growth is not None:
                        what = f"{way}, {version}: last quarter of the calls beside the first"
                        targets.append(Target(what, cost.growth, MAX_GROWTH, "times as long each"))
            if version == openwebui.VERSION:
                targets += await measure_delays(webui, browser, home, size)
    headings = ("version", "answer", "way", "finished ms", "socket kB", "last quarter ÷ first")
    print_table("Many and large calls in a real page", headings, rows)
    return targets


async def _ways(webui: OpenWebUI, browser: Browser, version: str, load: Load) -> AsyncIterator[tuple[str, Cost]]:
    size = f"{load.calls}_{load.chars}" + "_paced" * bool(load.pause_seconds)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(feed(load.events(), pause_seconds=load.pause_seconds))
        models: dict[str, str] = {}
        for rendering in ("details", "native"):
            function_id = f"callboard_{rendering}_{size}"
            await webui.install(function_id, install_pipe.PIPE, {"CALLBOARD_URL": server.url, "RENDERING": rendering})
            models[f"Callboard, {rendering}"] = f"{function_id}.{story.MODEL}"
        if not load.pause_seconds:
            models["Open WebUI's own tools"] = await stack.enter_async_context(own_calls(webui, load.calls, load.chars))
        for way, model in models.items():
            say(f"{version}: {load.name}: {way} …")
            yield way, await _watched(webui, browser, version, model, load)


async def _watched(webui: OpenWebUI, browser: Browser, version: str, model: str, load: Load) -> Cost:
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        await context.add_init_script(f"localStorage.setItem('token', {json.dumps(webui.token)})")
        if load.pause_seconds:
            await context.add_init_script(NOTE_LINES)
        page = await context.new_page()
        traffic = Traffic()
        traffic.watch(page)
        chat = await Chat.prepare(page, webui.url, webui.notes)
        await chat.open(model)
        traffic.size = 0
        started = time.perf_counter()
        await chat.send("Tell it.")
        try:
            await chat.wait_until_finished(SETTLE_SECONDS)
        except AssertionError:
            return Cost(inf, traffic.size, None)
        seconds = time.perf_counter() - started
        _check(await chat.chips(), await chat.text(), load)
        growth = _growth(await page.evaluate("window.lineSeen")) if load.pause_seconds else None
        return Cost(seconds, traffic.size, growth)
    finally:
        await context.close()


def _growth(at: list[float]) -> float:
    quarter = len(at) // 4
    return (at[-1] - at[-quarter]) / (at[quarter - 1] - at[0])


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
