"""The steps between an agent and the run's log that change an event, called by `callboard.runs.recorder` in this order.

`make_storable` replaces characters that the database cannot store, `redact_event` removes secrets, and `truncate` makes
the event fit its frames. Texts are redacted by `event_sender`, and the arguments of a start by `redact_arguments`.
"""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

from pydantic_core import PydanticSerializationError

from callboard.calls.call import write_arguments
from callboard.errors import AgentError
from callboard.redaction import Redaction
from callboard.text import storable_value
from callboard_protocol.wire import MAX_LINE_BYTES, MAX_TEXT_BYTES, Limit, Wire

WireT = TypeVar("WireT", bound=Wire)

_UNREDACTED_FIELDS = frozenset(
    {"type", "run_id", "agent", "tool_call_id", "request_id", "kind", "code", "finish_reason"}
)
"""Fields that identify an event; agents do not write text into them."""

MAX_CHAR_BYTES = 12
"""The most bytes that one character takes on the wire: a surrogate pair, escaped."""

_DEFAULT_LIMIT = Limit(MAX_TEXT_BYTES)
"""The limit of fields whose class declares none."""


def make_storable(event: WireT) -> WireT:
    """Return the event with `storable` applied to its texts; the same object if nothing changes.

    Raises `AgentError` if a value is nested too deeply or contains itself.
    """
    changes: dict[str, Any] = {}
    for name, value in event:
        try:
            fitting = make_storable(value) if isinstance(value, Wire) else storable_value(value)
            is_changed = fitting != value
        except RecursionError:
            raise AgentError(f"the agent yielded {type(event).__name__}: its {name} is nested too deeply") from None
        if is_changed:
            changes[name] = fitting
    return event.model_copy(update=changes) if changes else event


async def redact_event(event: WireT, redaction: Redaction) -> WireT:
    """Return the event with the secrets in its fields replaced; the same object if there are none.

    Text events are redacted by `callboard.runs.event_sender`, because a secret may be split between two of them.
    """
    changes: dict[str, Any] = {}
    for name, value in event:
        if name in _UNREDACTED_FIELDS:
            continue
        match value:
            case str() | dict() | list() | tuple():
                public = await redaction.large(value)
            case Wire():
                public = await redact_event(value, redaction)
            case _:
                continue
        if public is not value:
            changes[name] = public
    return event.model_copy(update=changes) if changes else event


def redact_arguments(arguments: dict[str, Any] | str, redaction: Redaction) -> tuple[str, dict[str, Any] | str]:
    """Return the arguments without secrets: as text for the store, and as an object for events.

    Text that is not a JSON object stays text in both. Raises `AgentError` if an object cannot be written as JSON.
    """
    raw, shown = _read_arguments(arguments)
    public = redaction.value(shown)
    if public is shown and redaction(raw) == raw:
        return raw, shown
    return (public if isinstance(public, str) else json.dumps(public, ensure_ascii=False)), public


def _read_arguments(arguments: dict[str, Any] | str) -> tuple[str, dict[str, Any] | str]:
    if isinstance(arguments, dict):
        # Arguments of frameworks may contain dates, NaN and objects of their own classes.
        try:
            raw = write_arguments(arguments)
        except PydanticSerializationError as error:
            raise AgentError(
                f"the agent yielded arguments of a call that cannot be written as JSON: {error}"
            ) from error
    else:
        raw = arguments
    try:
        shown = json.loads(raw, parse_constant=_refuse_constant) if raw.strip() else {}
    except (ValueError, RecursionError):
        return raw, raw
    return raw, shown if isinstance(shown, dict) else raw


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def truncate(event: WireT) -> list[WireT]:
    """Return `event` within the limits of its fields: as several events if a text may be split, otherwise cut.

    Sizes are those of the ASCII-escaped JSON text, in bytes, because that text is sent.
    """
    changes = _cut_fields(event)
    for name, limit in _limits_of(type(event)):
        if limit.over == "split" and not _is_small(text := getattr(event, name), limit.max_bytes):
            return [event.model_copy(update={**changes, name: piece}) for piece in _split(text, limit.max_bytes)]
    return [event.model_copy(update=changes) if changes else event]


@cache
def _limits_of(wire_type: type[Wire]) -> Sequence[tuple[str, Limit]]:
    return tuple(
        (name, next((one for one in field.metadata if isinstance(one, Limit)), _DEFAULT_LIMIT))
        for name, field in wire_type.model_fields.items()
    )


def _cut_fields(wire: Wire) -> dict[str, Any]:
    """Return the new values of the fields that exceed their limits."""
    changes: dict[str, Any] = {}
    for name, limit in _limits_of(type(wire)):
        if limit.over == "split":
            continue
        value = getattr(wire, name)
        fitting = _fit(value, limit)
        if fitting is not value:
            changes[name] = fitting
        if limit.flag:
            changes[limit.flag] = fitting is not value
    return changes


def _fit(value: Any, limit: Limit) -> Any:
    """Return the value cut to the limit; the same object if it fits."""
    match value:
        case str():
            return _cut(value, limit.max_bytes)
        case dict() if _size(value) <= limit.max_bytes:
            return value
        case dict() if limit.over == "as_text":
            return _cut(json.dumps(value, ensure_ascii=False), limit.max_bytes)
        case dict():
            return {name: member for name, member in value.items() if _size(member) <= MAX_LINE_BYTES}
        case list() | tuple():
            return _take_while_fitting(value, limit.max_bytes)
        case Wire():
            changes = _cut_fields(value)
            return value.model_copy(update=changes) if changes else value
        case _:
            return value


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=True, separators=(",", ":")))


def _is_small(text: str, max_bytes: int) -> bool:
    return len(text) * MAX_CHAR_BYTES <= max_bytes or (len(text) <= max_bytes and _size(text) - 2 <= max_bytes)


def _cut(text: str, max_bytes: int) -> str:
    """Return the longest prefix of `text` that takes at most `max_bytes` on the wire."""
    if _is_small(text, max_bytes):
        return text
    low = 0
    high = min(len(text), max_bytes)
    while low < high:
        middle = (low + high + 1) // 2
        if _size(text[:middle]) - 2 <= max_bytes:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def _split(text: str, max_bytes: int) -> list[str]:
    pieces: list[str] = []
    start = 0
    while start < len(text):
        piece = _cut(text[start : start + max_bytes], max_bytes)
        pieces.append(piece)
        start += len(piece)
    return pieces


def _take_while_fitting(entries: list[Any] | tuple[Any, ...], max_bytes: int) -> list[Any] | tuple[Any, ...]:
    """Return the first entries that fit together."""
    total = 0
    for place, entry in enumerate(entries):
        total += _size(entry) + 1
        if total > max_bytes:
            return entries[:place]
    return entries
