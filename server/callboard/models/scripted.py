"""A model that follows a script: the built-in model if no endpoint is set, and the demo agent's model.

It is product code, not a test double: it works offline, and a script always produces the same answer.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass

from callboard.models.messages import content_text
from callboard.models.model import (
    Finish,
    ModelDelta,
    ModelRequest,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
)
from callboard.openwebui.requests import answer_background_prompt, strip_context

SECONDS_PER_WORD = 0.02
CHARS_PER_TOKEN = 4

_INTRODUCTION = (
    "I am Callboard's built-in model: I follow a script and cannot answer this. "
    "To connect a real one, set `CALLBOARD_MODEL_BASE_URL` to any OpenAI-compatible endpoint and `CALLBOARD_MODEL` "
    "to a model that it serves (and `CALLBOARD_MODEL_API_KEY` if it needs a key), then start Callboard again.\n\n"
    "To see tool calls without any model, choose the demo agent."
)


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause before the next delta."""

    seconds: float


Script = Callable[[ModelRequest], Iterable[ModelDelta | Pause]]
"""Makes the deltas of an answer from a request. It is called for each request."""


def builtin_script(request: ModelRequest) -> Iterator[ModelDelta | Pause]:
    """Yield instructions for connecting a real model, or the answer to a background prompt.

    Open WebUI sends background prompts for each chat. Their answers make a first chat look right without a model.
    """
    if (answer := task_answer(request)) is not None:
        yield TextDelta(answer)
    else:
        yield from typed(_INTRODUCTION)


class ScriptedModel:
    """A model whose script yields the answer to each request.

    Without a script it is the built-in model, which explains how to connect another one. `pace` scales the script's
    pauses: 1 as written, 0 without pauses. A missing `Finish` and a missing `TokenUsage` (four characters a token) are
    added.
    """

    def __init__(self, script: Script = builtin_script, name: str = "scripted", *, pace: float = 1.0) -> None:
        self.name = name
        self.is_placeholder = script is builtin_script
        """The model only explains how to connect another one."""
        self._script = script
        self._pace = pace

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Yield the script's deltas at its pace. Raises the script's exceptions."""
        has_finished = False
        has_usage = False
        has_called = False
        written = 0
        for step in self._script(request):
            match step:
                case Pause():
                    if self._pace > 0:
                        await asyncio.sleep(step.seconds * self._pace)
                    continue
                case Finish():
                    has_finished = True
                case TokenUsage():
                    has_usage = True
                case ToolCallDelta():
                    has_called = True
                    written += len(step.arguments or "")
                case TextDelta() | ReasoningDelta() | RefusalDelta():
                    written += len(step.text)
                case _:
                    pass
            yield step
        if not has_usage:
            read = sum(len(content_text(message.get("content"))) for message in request.messages)
            tokens_in = -(-read // CHARS_PER_TOKEN)
            tokens_out = -(-written // CHARS_PER_TOKEN)
            yield TokenUsage(tokens_in, tokens_out, tokens_in + tokens_out)
        if not has_finished:
            yield Finish("tool_calls" if has_called else "stop")


# --- Helpers for scripts --------------------------------------------------------------------------------------------


def task_answer(request: ModelRequest) -> str | None:
    """Return the answer to a background prompt of Open WebUI, or None if the request is not one."""
    return answer_background_prompt(user_text(request))


def typed(text: str) -> Iterator[TextDelta | Pause]:
    """Yield `text` word by word, at the speed of fast typing."""
    *words, last = text.split(" ")
    for word in words:
        yield TextDelta(f"{word} ")
        yield Pause(SECONDS_PER_WORD)
    if last:
        yield TextDelta(last)


def user_text(request: ModelRequest) -> str:
    """Return the text of the last user message as the user typed it, empty if there is none."""
    for message in reversed(request.messages):
        if message.get("role") == "user":
            return strip_context(content_text(message.get("content")))
    return ""
