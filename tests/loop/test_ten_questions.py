"""One agent and one tool set answer the same ten questions over native, react and xml.

Against a whole server over HTTP, its model a scripted endpoint that speaks the format: the
same tool calls, the same events, the same stored history.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from callboard.agents import Agent
from callboard.calls import ToolContext, tool
from callboard.skills import Skill
from callboard_protocol import Event, ToolCallArgsDelta
from tests.fakes.openai_server import Body, Chunks, OpenAIServer, call, chunks, finish, text
from tests.serving import serving

PIECE_CHARS = 7
FORMATS = ("native", "react", "xml")


@tool(read_only=True)
async def search(query: str, limit: int = 3) -> dict[str, Any]:
    """Searches the library."""
    return {"query": query, "found": limit}


@tool
async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


@tool
async def book(context: ToolContext, place: str, guests: int) -> str:
    """Books a table."""
    await context.status("processing", f"Calling {place}")
    raise ValueError(f"{place} is full for {guests}")


@tool
async def note(entry: dict[str, Any]) -> str:
    """Keeps a note."""
    return json.dumps(entry, ensure_ascii=False)


AGENT = Agent("helper", "Helps.", (Skill("all", "All tools.", "Be brief.", (search, add, book, note)),))


@dataclass(frozen=True)
class Step:
    """One answer of the model: what it thinks, says, calls (name and arguments as text)."""

    said: str = ""
    calls: Sequence[tuple[str, str]] = ()
    thought: str = ""


@dataclass(frozen=True)
class Question:
    asked: str
    steps: Sequence[Step]
    results: Sequence[str] = field(default=())
    """What each call gives, in the order they start: a result, or the code of an error."""


QUESTIONS = (
    Question("Hello?", [Step("Hello to you.")]),
    Question("Think!", [Step("I did.", thought="Hm, what about?")]),
    Question("Storms?", [Step("Let me look.", [("search", '{"query": "storms"}')]), Step("Three books.")],
             ['{"query":"storms","found":3}']),
    Question("Both sums?", [Step("", [("add", '{"a": 1, "b": 2}'), ("add", '{"a": 3, "b": 4}')]), Step("3 and 7.")],
             ["3.0", "7.0"]),
    Question("Step by step?", [
        Step("First.", [("add", '{"a": 1, "b": 1}')], "One after the other."),
        Step("Then.", [("add", '{"a": 2, "b": 2}')]),
        Step("It is 4.", thought="That is all."),
    ], ["2.0", "4.0"]),
    Question("A table?", [Step("", [("book", '{"place": "The Globe", "guests": 4}')]), Step("It is full.")],
             ["tool_failed"]),
    Question("In other words?", [Step("", [("web-search", "{'query': 'masks', 'limit': '5'}")]), Step("Five.")],
             ['{"query":"masks","found":5}']),
    Question("What is not there?", [
        Step("", [("fly_to", '{"moon": true}')]), Step("", [("add", '{"a": 1}')]), Step("I cannot."),
    ], ["unknown_tool", "invalid_args"]),
    Question("Sure?", [Step("", [("search", '{"query": "x"}')]) for _ in range(3)] + [Step("Sure.")],
             ['{"query":"x","found":3}', '{"query":"x","found":3}', "limit"]),
    Question("Keep this?", [
        Step("Noted:", [("note", '{"entry": {"say": "\\"Ünïcode\\" } \\n🎭 <b>", "list": [1, {"deep": null}]}}')]),
        Step("| kept | |\n| --- | --- |\n| `Action: x` | yes |\n\n```python\nprint('<tool_call>')\n```\n"),
    ], ['{"say": "\\"Ünïcode\\" } \\n🎭 <b>", "list": [1, {"deep": null}]}']),
)  # fmt: skip


def pieces(written: str) -> Iterator[str]:
    return (written[at : at + PIECE_CHARS] for at in range(0, len(written), PIECE_CHARS))


def native(step: Step) -> Chunks:
    parts = [text(None, reasoning_content=piece) for piece in pieces(step.thought)]
    parts += [text(piece) for piece in pieces(step.said)]
    for index, (name, arguments) in enumerate(step.calls):
        parts.append(call(name, "", index=index, call_id="same"))
        parts += [call(arguments=piece, index=index) for piece in pieces(arguments)]
    return chunks(*parts, finish("tool_calls" if step.calls else "stop"))


def react(step: Step) -> Chunks:
    actions = "\n".join(f"Action: {name}\nAction Input: {arguments}" for name, arguments in step.calls)
    if actions:
        # What is said between `Thought:` and `Action:` is thought, and behind a final answer nothing is called.
        thought = f"<think>{step.thought}</think>\n" if step.thought else ""
        imagined = "\nObservation: IMAGINED\nThought: I see.\nFinal Answer: IMAGINED."
        return written(f"{thought}{step.said}\n{actions}{imagined}")
    thought = f"Thought: {step.thought}\n" if step.thought else ""
    return written(f"{thought}Final Answer: {step.said}")


def xml(step: Step) -> Chunks:
    thought = f"<think>{step.thought}</think>\n" if step.thought else ""
    blocks = "\n".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>' for name, arguments in step.calls
    )
    imagined = "\n<tool_response>IMAGINED</tool_response>\nIMAGINED." if blocks else ""
    return written(f"{thought}{step.said}\n{blocks}{imagined}" if blocks else thought + step.said)


def written(answer: str) -> Chunks:
    return chunks(*(text(piece) for piece in pieces(answer)), finish("stop"))


SPEAKS = {"native": native, "react": react, "xml": xml}


@dataclass(frozen=True)
class Answered:
    """What there is of all ten questions: what each client saw, what is stored, what the model was sent."""

    events: list[list[Any]]
    arguments: list[list[str]]
    messages: list[Any]
    timelines: list[Any]
    requests: list[Body]


async def answer(folder: Path, name: str) -> Answered:
    steps = [step for question in QUESTIONS for step in question.steps]
    answered = Answered([], [], [], [], [])
    async with OpenAIServer([SPEAKS[name](step) for step in steps]) as endpoint:
        settings = {"model_base_url": endpoint.base_url, "model": "m", "tool_format": name}
        async with serving(folder / name, AGENT, **settings) as service:
            for number, question in enumerate(QUESTIONS):
                asked = [{"role": "user", "content": question.asked}]
                body = {"agent": "helper", "chat_id": f"chat{number}", "message_id": "m", "messages": asked}
                events = await service.events(body)
                ids = Ids()
                answered.events.append([ids.hide(one) for one in joined(events)])
                answered.arguments.append(arguments_written(events))
                for kept, part in ((answered.messages, "messages"), (answered.timelines, "timeline")):
                    response = await service.client.get(f"/v1/chats/chat{number}/{part}")
                    kept.append(Ids().hide(response.json()))
        answered.requests.extend(endpoint.requests)
    return answered


HIDDEN = ("run_id", "duration_ms", "input_tokens", "output_tokens", "total_tokens")
TIMES = ("at", "created_at", "started_at", "ended_at")


class Ids:
    """Puts numbers in the place of ids, and nothing in the place of times."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def hide(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._member(key, item) for key, item in value.items()}
        return [self.hide(item) for item in value] if isinstance(value, list) else value

    def _member(self, key: str, item: Any) -> Any:
        if key in HIDDEN or (key in TIMES and item is not None):
            return None
        if key in ("tool_call_id", "id") and isinstance(item, str):
            return self._numbers.setdefault(item, len(self._numbers))
        return self.hide(item)


def joined(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The events as they are on the wire, neighbouring texts as one, without the arguments' pieces."""
    found: list[dict[str, Any]] = []
    for event in events:
        if isinstance(event, ToolCallArgsDelta):
            continue
        shown = event.model_dump(mode="json")
        if found and shown["type"] in ("message", "reasoning") and found[-1]["type"] == shown["type"]:
            found[-1]["content"] += shown["content"]
        elif shown["type"] != "usage":
            found.append(shown)
    # Parallel calls end when they end: their order within a round is chance.
    ends = ("tool_call_complete", "tool_call_error")
    for at in range(len(found) - 1):
        pair = found[at : at + 2]
        if all(one["type"] in ends for one in pair) and pair[0]["result"] > pair[1]["result"]:
            found[at : at + 2] = reversed(pair)
    return found


def arguments_written(events: Sequence[Event]) -> list[str]:
    """The arguments of each call as they were shown while they were written."""
    written: dict[str, str] = {}
    for event in events:
        if isinstance(event, ToolCallArgsDelta):
            written[event.tool_call_id] = written.get(event.tool_call_id, "") + event.delta
    return list(written.values())


def outcomes(events: Sequence[Mapping[str, Any]]) -> list[str]:
    ends = (event for event in events if event["type"] in ("tool_call_complete", "tool_call_error"))
    return [end["result"] if end["type"] == "tool_call_complete" else end["code"] for end in ends]


async def test_ten_questions_have_the_same_calls_events_and_history_in_every_format(tmp_path: Path) -> None:
    first, *others = [await answer(tmp_path, name) for name in FORMATS]
    assert len(first.events) == 10
    assert [outcomes(events) for events in first.events] == [list(question.results) for question in QUESTIONS]
    for other in others:
        for number in range(len(QUESTIONS)):
            assert other.events[number] == first.events[number]
            assert other.arguments[number] == first.arguments[number]
            assert other.messages[number] == first.messages[number]
            assert other.timelines[number] == first.timelines[number]
    for name, one in zip(FORMATS, [first, *others], strict=True):
        assert all(("tools" in request) == (name == "native") for request in one.requests)
        assert all(("stop" in request) == (name != "native") for request in one.requests)
        assert "IMAGINED" not in str(one.requests)
