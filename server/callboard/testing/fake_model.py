"""A model whose answers are written down."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from callboard.errors import ModelError
from callboard.models import Finish, ModelDelta, ModelRequest, TextDelta, ToolCallDelta

MAX_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True, init=False)
class Call:
    """A tool call that the model makes: `Call("add", a=1, b=2)`; `Call("add", '{"a": 1')` for arguments as a text."""

    name: str
    arguments: str

    def __init__(self, name: str, written: str | None = None, /, **arguments: Any) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arguments", json.dumps(arguments) if written is None else written)


class FakeModel:
    """A model with one answer for each request, in their order: a text, or a list of texts and calls.

    `requests` keeps what it was asked. Where it is asked once more than it has answers, the run ends with an error, and
    `callboard.testing.client` fails the test with what the model was asked.
    """

    name = "fake"

    def __init__(self, *answers: str | Sequence[str | Call]) -> None:
        self.requests: list[ModelRequest] = []
        self.failure: str | None = None
        """What to say of the first request that there was no answer for, until a test was failed with it."""
        self._answers = [(answer,) if isinstance(answer, str) else tuple(answer) for answer in answers]

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Yield the next answer."""
        self.requests.append(request)
        number = len(self.requests)
        if number > len(self._answers):
            self.failure = self.failure or _describe_request(request, number, len(self._answers))
            # No AssertionError: it would end in the server's thread, far from the test.
            raise ModelError(self.failure)
        calls = 0
        for part in self._answers[number - 1]:
            if isinstance(part, str):
                yield TextDelta(part)
            else:
                yield ToolCallDelta(calls, id=f"call_{number}_{calls}", name=part.name, arguments=part.arguments)
                calls += 1
        yield Finish("tool_calls" if calls else "stop")

    async def aclose(self) -> None:
        """Close nothing: there is nothing to let go of."""


def _describe_request(request: ModelRequest, number: int, answers: int) -> str:
    """Return that a request was one too many, and what came last in it."""
    last = request.messages[-1] if request.messages else {}
    said = shorten(str(last.get("content") or ""), MAX_SHOWN_CHARS)
    return (
        f"FakeModel has {answers} answers and was asked {number} times, the last time after the message "
        f"{last.get('role', 'none')}: {said!r}. Give it one more answer, or find out why it was asked again."
    )
