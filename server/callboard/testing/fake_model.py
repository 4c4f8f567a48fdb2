"""A model with given answers."""

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
    """A tool call of the model: `Call("add", a=1, b=2)`, or `Call("add", '{"a": 1')` for arguments as text."""

    name: str
    arguments: str

    def __init__(self, name: str, written: str | None = None, /, **arguments: Any) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arguments", json.dumps(arguments) if written is None else written)


class FakeModel:
    """A model with one answer for each request, in order: a text, or a list of texts and calls.

    `requests` has all requests so far. If there are more requests than answers, the run ends with an error, and
    `callboard.testing.client` fails the test with a message that quotes the request.
    """

    name = "fake"

    def __init__(self, *answers: str | Sequence[str | Call]) -> None:
        self.requests: list[ModelRequest] = []
        self.failure: str | None = None
        """Message about the first request without an answer; None again after a test has failed with it."""
        self._answers = [(answer,) if isinstance(answer, str) else tuple(answer) for answer in answers]

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Yield the next answer."""
        self.requests.append(request)
        number = len(self.requests)
        if number > len(self._answers):
            self.failure = self.failure or _describe_request(request, number, len(self._answers))
            # Not an AssertionError, which would end in the server's thread and not reach the test.
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
        """Do nothing; every model has this method."""


def _describe_request(request: ModelRequest, number: int, answers: int) -> str:
    """Return a message about a request without an answer, with the request's last message."""
    last = request.messages[-1] if request.messages else {}
    text = shorten(str(last.get("content") or ""), MAX_SHOWN_CHARS)
    return (
        f"FakeModel has {answers} answers and was asked {number} times, the last time after the message "
        f"{last.get('role', 'none')}: {text!r}. Give it another answer, or find out why it was asked again."
    )
