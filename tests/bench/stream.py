"""How long a long answer takes to reach Open WebUI's database, one way beside the other."""

import re
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import install_pipe
import openwebui
from tests import processes
from tests.bench import story
from tests.bench.feeds import feed, openai_feed
from tests.bench.own_calls import IN_ROUNDS, add_own_model, calling_model
from tests.bench.report import FULL, SMOKE, Size, Target, milliseconds, print_table, say
from tests.bench.served import AGENTS
from tests.bench.webui import Answer, OpenWebUI, at_hand, running

HERE = Path(__file__).parent
REPETITIONS = {FULL: 5, SMOKE: 1}
SLOW_REPETITIONS = {FULL: 2, SMOKE: 1}
LOOP_CALLS = {FULL: 50, SMOKE: 3}
MAX_TIMES_LOOP = (1.0, 0.8)
"""For all calls in one round, and for one call in each round."""
MAX_TIMES_STRINGS = 2.0
MIN_TIMES_FASTER_THAN_EVENTS = 10.0
BLOCK = re.compile(r'<details type="tool_calls" done="true" id="([^"]+)"[^>]*>\n.*?</details>', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to bring the story into Open WebUI: the `model` that is asked for it."""

    name: str
    model: str
    has_calls: bool = False
    is_slow: bool = False

    def check(self, content: str, chunks: int) -> None:
        """Raise `AssertionError` if anything of the story is missing or doubled."""
        blocks = BLOCK.findall(content)
        if BLOCK.sub("", content).split() != "".join(story.chunks(chunks)).split():
            raise AssertionError(f"{self.name}: the saved text is not the text that was sent")
        calls = story.call_count(chunks) if self.has_calls else 0
        whole = sum(story.result(number) in content for number in range(calls))
        if (len(set(blocks)), whole) != (calls, calls):
            raise AssertionError(f"{self.name}: {len(blocks)} calls and {whole} results saved, of {calls}")


STRINGS = Way("a bare pipe that yields strings", "strings")
EVENTS = Way("a pipe that sends message events", "events", is_slow=True)
DICTS = Way("a bare pipe that yields dicts", "dicts")
CONNECTION = Way("Open WebUI's own OpenAI connection", story.MODEL)
JOINED = Way("Callboard", "callboard.text")
UNJOINED = Way("Callboard, every chunk a frame", f"unjoined.{story.MODEL}")
CALLS = Way("Callboard, with calls", "callboard.calls", has_calls=True)
UNJOINED_CALLS = Way("Callboard, with calls, every event a frame", f"unjoined_calls.{story.MODEL}", has_calls=True)
WAYS = (STRINGS, EVENTS, CONNECTION, DICTS, JOINED, UNJOINED, CALLS, UNJOINED_CALLS)


async def measure(folder: Path, size: Size) -> list[Target]:
    """Prints the table; Callboard is judged by the slower of its ways.

    Its server joins text that comes fast, which no other way does; but where nothing is joined there is only the
    pipe at work, fed with bytes made beforehand.
    """
    if not at_hand([openwebui.VERSION], size):
        return []
    chunks = story.CHUNKS[size]
    async with AsyncExitStack() as stack:
        server, command = stack.enter_context(processes.serving(folder / "server", AGENTS=AGENTS))
        processes.discard(command.stderr)
        webui = await stack.enter_async_context(running(folder))
        text = await stack.enter_async_context(feed(story.text_only(chunks)))
        calls = await stack.enter_async_context(feed(story.with_calls(chunks)))
        openai = await stack.enter_async_context(openai_feed(chunks, webui.note_start))
        for function_id, url in (("callboard", server), ("unjoined", text.url), ("unjoined_calls", calls.url)):
            await webui.install(function_id, install_pipe.PIPE, {"CALLBOARD_URL": url})
        for way in (STRINGS, EVENTS, DICTS):
            await webui.install(way.model, HERE / "pipes" / f"{way.model}.py")
        await webui.connect(f"{openai.url}/v1", story.MODEL)
        answers = await _answers(webui, chunks, size)
        loops = await _measure_loops(folder, webui, size)
    seconds = {way: statistics.median(answer.seconds for answer in given) for way, given in answers.items()}
    _print(answers, seconds, chunks)
    ours = max(seconds[JOINED], seconds[UNJOINED])
    beside_strings = ours / seconds[STRINGS]
    beside_connection = ours / seconds[CONNECTION]
    faster = seconds[EVENTS] / ours
    return [
        Target("Callboard beside a pipe that yields strings", beside_strings, MAX_TIMES_STRINGS, "times as long"),
        Target("Callboard beside Open WebUI's own connection", beside_connection, 1.0, "times as long", aim=True),
        Target("Callboard beside events", faster, MIN_TIMES_FASTER_THAN_EVENTS, "times as fast", at_least=True),
        *loops,
    ]


async def _answers(webui: OpenWebUI, chunks: int, size: Size) -> dict[Way, list[Answer]]:
    """The ways take turns, so that what else the machine does falls on all of them; the first round warms up."""
    answers: dict[Way, list[Answer]] = {way: [] for way in WAYS}
    for repetition in range(REPETITIONS[size] + 1):
        say(f"Round {repetition} of {REPETITIONS[size]} …")
        for way in WAYS:
            if repetition <= (SLOW_REPETITIONS if way.is_slow else REPETITIONS)[size]:
                answer = await webui.ask(way.model, str(chunks))
                way.check(answer.content, chunks)
                answers[way] += [answer] * (repetition > 0)
    return answers


def _print(answers: Mapping[Way, Sequence[Answer]], medians: Mapping[Way, float], chunks: int) -> None:
    rows = []
    for way, given in answers.items():
        times = [answer.seconds for answer in given]
        median = medians[way]
        updates = [answer.updates for answer in given if answer.updates is not None]
        rows.append(
            (
                way.name,
                *map(milliseconds, (median, min(times), max(times))),
                len(times),
                f"{statistics.median(updates):,.0f}" if updates else "",
                f"{median / medians[STRINGS]:.2f}",
                f"{median / medians[CONNECTION]:.2f}",
                f"{medians[EVENTS] / median:.1f}",
            )
        )
    headings = ("way", "median ms", "fastest", "slowest", "runs", "updates", "÷ strings", "÷ connection", "events ÷ it")
    title = (
        f"{chunks:,} chunks, {story.call_count(chunks)} calls where there are any, until they are saved in Open WebUI"
    )
    print_table(title, headings, rows)


async def _measure_loops(folder: Path, webui: OpenWebUI, size: Size) -> list[Target]:
    """Print the table: whole answers of an agent, and of Open WebUI's own loop with the same calls and model."""
    calls = LOOP_CALLS[size]
    own = "own_reader"
    ways = {"Callboard": ("reader.reader", ()), "Open WebUI's own loop": (own, (own,))}
    seconds: dict[tuple[str, str], list[float]] = {}
    async with AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(calling_model(calls))
        model = {"MODEL_BASE_URL": endpoint.base_url, "MODEL": "story", "MAX_TOOL_CALLS_PER_TURN": "1000"}
        server, command = stack.enter_context(processes.serving(folder / "reader", AGENTS=AGENTS, **model))
        processes.discard(command.stderr)
        await webui.install("reader", install_pipe.PIPE, {"CALLBOARD_URL": server})
        await add_own_model(webui, endpoint, own, story.RESULT_CHARS)
        for repetition in range(REPETITIONS[size] + 1):
            for form in (f"{calls} calls in one round", f"{calls} calls {IN_ROUNDS}"):
                for way, (model_id, tool_ids) in ways.items():
                    answer = await webui.ask(model_id, form, tool_ids)
                    found = sum(f"result {number:04d} " in answer.content + answer.output for number in range(calls))
                    if found != calls or f"Step {calls - 1}." not in answer.content:
                        raise AssertionError(f"{way}, {form}: {found} results saved: {answer.content[-500:]}")
                    seconds.setdefault((form, way), []).extend([answer.whole_seconds] * (repetition > 0))
    rows = []
    targets = []
    for form, goal in zip(dict.fromkeys(form for form, _ in seconds), MAX_TIMES_LOOP, strict=True):
        times_of = {way: seconds[form, way] for way in ways}
        ours, others = map(statistics.median, times_of.values())
        ratio = ours / others
        for way, times in times_of.items():
            rows.append((form, way, *map(milliseconds, (statistics.median(times), min(times), max(times)))))
        targets.append(
            Target(f"{form}, Callboard beside Open WebUI's own loop", ratio, goal, "times as long", aim=True)
        )
    headings = ("answer", "way", "median ms", "fastest", "slowest")
    print_table("Whole answers, from the question until they are saved in Open WebUI", headings, rows)
    return targets
