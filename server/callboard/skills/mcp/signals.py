"""Signals of a connection to the task that keeps it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

ENDED = "it ended"
"""Reason for which a connection is of no more use, where nothing more is known."""

FORGOTTEN = "it no longer knows the session"


class ForgottenSession(Exception):
    """The server refused a call before it ran, because it no longer knows the session that the call belongs to."""


@dataclass(eq=False, slots=True)
class SentCall:
    """A call that the server has not answered yet."""

    is_refused: bool = False
    """True if the server did not run it, because it no longer knows the session."""


sent_call: ContextVar[SentCall | None] = ContextVar("callboard_mcp_sent_call", default=None)
"""The call that a request over HTTP belongs to: the SDK sends each in the context of its caller."""


def _make_set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True)
class Signals:
    """Set from anywhere in the event loop; `wake` with each."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    stopping: bool = False
    tools_changed: bool = True
    end_reason: str = ""
    open_calls: set[SentCall] = field(default_factory=set)
    is_forgotten: bool = False
    renewed: asyncio.Event = field(default_factory=_make_set_event)
    """Not set from the moment the server has forgotten the session until there is another, or none can be had."""

    left_out: list[tuple[str, str]] = field(default_factory=list)
    """Tools of the list that was read last which cannot be used, with the reason of each."""

    def change_tools(self) -> None:
        """Have the server's list of tools read again."""
        self.tools_changed = True
        self.wake.set()

    def leave_out(self, tool_name: str, reason: str) -> None:
        """Note that a tool of the server's list cannot be used."""
        self.left_out.append((tool_name, reason))

    def end(self, reason: str) -> None:
        """Say that the connection is of no more use; the first reason counts."""
        self.end_reason = self.end_reason or reason
        self.wake.set()

    def forget(self) -> None:
        """Say that the server has forgotten the session, so that another one is begun at once."""
        self.is_forgotten = True
        self.renewed.clear()
        self.end(FORGOTTEN)

    @contextmanager
    def calling(self) -> Iterator[SentCall]:
        """Have the requests of this context belong to the call that is yielded."""
        sent = SentCall()
        token = sent_call.set(sent)
        self.open_calls.add(sent)
        try:
            yield sent
        finally:
            sent_call.reset(token)
            self.open_calls.discard(sent)
            self.wake.set()

    @property
    def awaits_answers(self) -> bool:
        """Return whether there are calls that the server may still answer."""
        return not all(call.is_refused for call in self.open_calls)

    def stop(self) -> None:
        """Say that nobody needs the server any longer."""
        self.stopping = True
        self.renewed.set()
        self.wake.set()

    def begin(self) -> None:
        """Forget what was said of the last connection: a new one begins."""
        self.tools_changed = True
        self.is_forgotten = False
        self.end_reason = ""
