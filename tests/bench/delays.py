"""The delay until a page shows text that the model has sent, and the check mark of a tool that has ended."""

import json
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from playwright.async_api import Browser

import install_pipe
from tests import processes
from tests.bench.own_calls import add_own_model
from tests.bench.report import FULL, SMOKE, Size, Target, milliseconds, print_table, say
from tests.bench.served import AGENTS
from tests.bench.webui import OpenWebUI
from tests.e2e.open_webui_page import Chat
from tests.fakes.openai_server import Answer, Body, Chunks, OpenAIServer, call, finish, text

STEPS = {FULL: 10, SMOKE: 2}
ANSWERS = {FULL: 3, SMOKE: 1}
PAUSE_SECONDS = 0.3
"""The time between two chunks of the model, so that each change of the page has one cause."""
OWN = "own_wait"
FINISHED_SECONDS = 60.0

# When each line of text and each check mark was first on screen, in seconds of the clock that all processes share.
NOTE_CHANGES = """
window.seen = {};
new MutationObserver(() => {
    const answer = [...document.querySelectorAll('.chat-assistant')].at(-1);
    const note = name => window.seen[name] ??= Date.now() / 1000;
    for (const [, number] of (answer?.textContent ?? "").matchAll(/Step (\\d+)\\./g)) note(`sent_${number}`);
    const chips = window.chipsSeen.at(-1) ?? [];
    chips.filter(chip => !chip.running).forEach((_, number) => note(`ended_${number}`));
}).observe(document, {subtree: true, childList: true, characterData: true, attributes: true});
"""


async def measure_delays(webui: OpenWebUI, browser: Browser, folder: Path, size: Size) -> list[Target]:
    """Print the table: the delays of an agent, in both renderings, and of Open WebUI's own loop with the same model."""
    steps = STEPS[size]

    def script(body: Body) -> Answer:
        question = max(number for number, one in enumerate(body["messages"]) if one["role"] == "user")
        step = len([one for one in body["messages"][question:] if one["role"] == "tool"])
        return Chunks(_write_step(webui.notes, step, is_last=step == steps), pause_seconds=PAUSE_SECONDS)

    delays: dict[str, dict[str, list[float]]] = {}
    async with AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(OpenAIServer(script))
        model = {"MODEL_BASE_URL": endpoint.base_url, "MODEL": "story", "BENCH_NOTES": str(webui.notes)}
        server, command = stack.enter_context(processes.serving(folder / "waiter", AGENTS=AGENTS, **model))
        processes.discard(command.stderr)
        ways = {"Open WebUI's own loop": OWN}
        for rendering in ("details", "native"):
            function_id = f"waiter_{rendering}"
            await webui.install(function_id, install_pipe.PIPE, {"CALLBOARD_URL": server, "RENDERING": rendering})
            ways[f"Callboard, {rendering}"] = f"{function_id}.waiter"
        await add_own_model(webui, endpoint, OWN, 0)
        for answer in range(ANSWERS[size]):
            for way, model_id in ways.items():
                say(f"Delays, answer {answer + 1} of {ANSWERS[size]}: {way} …")
                seen = await _watch(webui, browser, model_id, steps)
                for what, seconds in seen.items():
                    note = webui.notes / what
                    delay = seconds - float(note.read_text())
                    note.unlink()  # The next answer must write its own.
                    # The page counts whole milliseconds.
                    if delay < -0.001:
                        raise AssertionError(f"{way}: {what} was on screen before it happened")
                    delays.setdefault(way, {}).setdefault(what.partition("_")[0], []).append(delay)
    return _judge(delays)


def _write_step(notes: Path, step: int, *, is_last: bool) -> Iterator[dict[str, Any]]:
    """Write a line and a call, or a line and the end, and note when the line was sent."""
    yield text(f"Step {step}.\n")
    # The next chunk is asked for when this one is sent.
    (notes / f"sent_{step}").write_text(repr(time.time()))
    if not is_last:
        yield call("wait", json.dumps({"step": step}), call_id=f"call_{step}")
    yield finish("stop" if is_last else "tool_calls")


async def _watch(webui: OpenWebUI, browser: Browser, model_id: str, steps: int) -> Mapping[str, float]:
    """Ask in a page, and return when each line and each check mark was on screen."""
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        await context.add_init_script(f"localStorage.setItem('token', {json.dumps(webui.token)})")
        page = await context.new_page()
        chat = await Chat.prepare(page, webui.url, webui.notes)
        await page.add_init_script(NOTE_CHANGES)
        await chat.open(model_id)
        await chat.send("Wait.")
        await chat.wait_until_finished(FINISHED_SECONDS)
        seen: dict[str, float] = await page.evaluate("window.seen")
    finally:
        await context.close()
    if len(seen) != 2 * steps + 1:
        raise AssertionError(f"{model_id}: not all is on screen: {sorted(seen)}")
    return seen


def _judge(delays: Mapping[str, Mapping[str, list[float]]]) -> list[Target]:
    medians = {
        way: {what: statistics.median(seconds) for what, seconds in of_way.items()} for way, of_way in delays.items()
    }
    rows = [
        (
            way,
            *(milliseconds(medians[way][what]) for what in ("sent", "ended")),
            *(milliseconds(max(of_way[what])) for what in ("sent", "ended")),
        )
        for way, of_way in delays.items()
    ]
    print_table(
        "From its cause to the screen", ("way", "text ms", "check mark ms", "longest text", "longest check mark"), rows
    )
    own, *ours = medians.values()
    return [
        Target(
            f"{what}, Callboard beside Open WebUI's own loop",
            max(way[key] for way in ours) / own[key],
            1.0,
            "times as long",
            aim=True,
        )
        for key, what in (("sent", "text to screen"), ("ended", "end of a call to its check mark"))
    ]
