"""A Callboard server with the cashier, and a scripted model behind it that keeps every request it is sent.

The model does what the user's words say: "sell Hamlet" is a call, "sell Hamlet and Macbeth" two parallel ones, "sell
the nasty play" one whose arguments break pages that show them carelessly, "read the ledger" a long result, and before
"think" it thinks. Other words get text alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from service import free_port
from tests.e2e.callboard_service import callboard_service
from tests.e2e.conftest import KEY, SERVER_START_SECONDS, OpenWebUI, install, running
from tests.fakes.openai_server import Answer, Body, OpenAIServer, call, chunks, finish, text

AGENTS = Path(__file__).with_name("cashier.py")
AFTER = "The curtain falls."
THOUGHT = "They want it, says my inner voice."
NASTY_PLAY = (
    "<img src=x onerror=\"document.title='pwned'\"> **bold** [link](http://a.example) `tick` {{user}} </pre>"
    ' &lt;b&gt; "quoted" \u202ereversed\u202c \u2028\nsecond line'
)
SEATS = 2


class BoxOffice:
    """The server at `url` with all it keeps in `data`; `endpoint` is its model."""

    def __init__(self, url: str, data: Path, endpoint: OpenAIServer) -> None:
        self.url = url
        self.endpoint = endpoint
        self._sold = data / "sold"

    @property
    def sold(self) -> list[dict[str, Any]]:
        """The arguments of every sale that was made."""
        return [json.loads(line) for line in self._sold.read_text("utf-8").splitlines()] if self._sold.exists() else []

    @property
    def told(self) -> list[list[Body]]:
        """The messages of every request for an answer, without those for titles and the like."""
        return [body["messages"] for body in self.endpoint.requests if body.get("tools")]

    def forget(self) -> None:
        """Nothing was sold and nothing asked."""
        self._sold.unlink(missing_ok=True)
        self.endpoint.requests.clear()

    def models(self, open_webui: OpenWebUI, name: str, rendering: str, **valves: str) -> str:
        """The beginning of its agents' ids in Open WebUI, through a pipe of that name and rendering."""
        function_id = f"{name}_{rendering}"
        install(open_webui, self.url, function_id, rendering, **valves)
        return function_id


@asynccontextmanager
async def opened(data: Path, artifacts: Path, **settings: str) -> AsyncIterator[BoxOffice]:
    """The server, running; `settings` are its own beside what it needs."""
    async with OpenAIServer(Script()) as endpoint:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        own = {"AGENTS": str(AGENTS), "MODEL_BASE_URL": endpoint.base_url, "MODEL": "scripted", "PUBLIC_URL": url}
        service = callboard_service("The box office", port, data, KEY, **(own | settings))
        with running(service, SERVER_START_SECONDS, artifacts):
            yield BoxOffice(url, data, endpoint)


def asked(messages: list[Body]) -> str:
    """The words of the user's last message, whatever is attached to it."""
    content = next(message["content"] for message in reversed(messages) if message["role"] == "user")
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


class Script:
    """The model's answers."""

    def __init__(self) -> None:
        self._numbers = count()

    def __call__(self, body: Body) -> Answer:
        messages: list[Body] = body["messages"]
        words = asked(messages)
        if not body.get("tools"):
            return chunks(text(json.dumps({"title": "Tickets", "tags": [], "follow_ups": []})), finish("stop"))
        if numbers := re.findall(r'"source_number":(\d+)', str(messages[-1]["content"])):
            return chunks(text("Second [source{1}], first [source{0}].".format(*numbers)), finish("stop"))
        calls = [] if messages[-1]["role"] == "tool" else list(self._calls(words))
        thoughts = [text(None, reasoning_content=THOUGHT)] if "think" in words else []
        if calls:
            return chunks(*thoughts, *calls, finish("tool_calls"))
        return chunks(*thoughts, text(AFTER), finish("stop"))

    def _calls(self, words: str) -> Iterator[Body]:
        plays = [NASTY_PLAY] if "the nasty play" in words else []
        if order := re.search(r"\bsell ([A-Z]\w+(?: and [A-Z]\w+)*)", words):
            plays = order[1].split(" and ")
        for index, play in enumerate(plays):
            arguments = json.dumps({"play": play, "seats": SEATS})
            yield call("sell", arguments, index=index, call_id=f"call_{next(self._numbers)}")
        if "read the ledger" in words:
            yield call("read_ledger", "{}", call_id=f"call_{next(self._numbers)}")
        if words == "reserve":
            yield call("reserve", "{}", call_id=f"call_{next(self._numbers)}")
        if words == "search":
            yield call("search_archive", '{"query": "theatres"}', call_id=f"call_{next(self._numbers)}")
