"""A Callboard server whose agents end in every way there is, and the scripted endpoint behind it.

The model does what the user's first words say, and after its first round of calls what `_LATER` has for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

from service import Service
from tests.e2e.callboard_service import callboard_service
from tests.fakes.openai_server import Answer, Body, Chunks, OpenAIServer, Refusal, Silence, call, chunks, finish, text

AGENTS = Path(__file__).with_name("actor.py")
BEFORE = "Once upon a time. "
AFTER = "And so it ended."
NEXT = "Hello again."
START_SECONDS = 60.0

_LATER: Mapping[str, Answer] = {
    "refuse 401": Refusal(401, "bad key"),
    "refuse 429": Refusal(429, "slow down"),
    "refuse 500": Refusal(500, "out of order"),
    "filter": chunks(text("Half a"), call("note", '{"wo', call_id="cut"), finish("content_filter")),
    "decline": chunks(text(None, refusal="I must not say that."), finish("stop")),
    "fail": chunks(text("Half a"), finish("error")),
    "malform": chunks(text(""), finish("malformed_function_call")),
    "be silent": Silence(),
    "tell": Chunks((text(AFTER), finish("stop"))),
}


class Stage:
    """The server at `url`; `endpoint` is its model."""

    def __init__(self, service: Service, url: str, key: str, endpoint: OpenAIServer) -> None:
        self.service = service
        self.url = url
        self.key = key
        self.endpoint = endpoint


class Script:
    """The model's answers."""

    def __init__(self) -> None:
        self._words = count()
        self._silences = count()

    def __call__(self, body: Body) -> Answer:
        messages: list[Body] = body["messages"]
        asked = str(next(message["content"] for message in reversed(messages) if message["role"] == "user"))
        if asked.startswith("### Task:"):
            return chunks(text(json.dumps({"title": "A play", "tags": ["play"], "follow_ups": []})), finish("stop"))
        if asked == "hello":
            return chunks(text(NEXT), finish("stop"))
        if asked == "go silent in mid-sentence":
            return Chunks((text(BEFORE),), "hang")
        if asked == "go silent once":
            # What follows the first time is said the next time.
            if next(self._silences) % 2 == 0:
                return Chunks((text(BEFORE),), "hang")
            return chunks(text(BEFORE), text(AFTER), finish("stop"))
        if asked == "for ever" and body.get("tools"):
            return chunks(*([] if self._played(messages) else [text(BEFORE)]), *self._note(), finish("tool_calls"))
        if self._played(messages):
            return _LATER.get(asked, _LATER["tell"])
        return chunks(text(BEFORE), *self._first(asked), finish("tool_calls"))

    def _first(self, asked: str) -> Iterator[Body]:
        if asked == "ask first":
            yield call("sell", '{"play": "Hamlet"}', index=0, call_id=f"call_{next(self._words)}")
        elif asked not in ("search", "walk", "grind"):
            yield from self._note()
        if asked in ("walk", "grind"):
            yield call(asked, '{"subject": "axes"}', index=0, call_id=f"call_{next(self._words)}")
        if asked in ("search", "two at once"):
            yield call("search", '{"subject": "owls"}', index=1, call_id=f"call_{next(self._words)}")

    def _note(self) -> Iterator[Body]:
        number = next(self._words)
        yield call("note", json.dumps({"word": f"word {number}"}), index=0, call_id=f"call_{number}")

    @staticmethod
    def _played(messages: list[Body]) -> bool:
        return bool(messages[-1]["role"] == "tool")


def service(port: int, data: Path, key: str, model_base_url: str) -> Service:
    """The server, not yet started, with all it keeps under `data`."""
    model = {"MODEL_BASE_URL": model_base_url, "MODEL": "scripted"}
    return callboard_service("The stage's server", port, data, key, AGENTS=str(AGENTS), **model)
