"""Stored turns, put back where a client sends an answer of which it was told less than the model lived through.

A client of OpenAI's API that is shown no tool calls sends the bare text back, and one that ran a
function of its own sends that call alone: the calls of the server's tools are put in from the
store, each where it was. Pure.
"""

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import Any, Protocol

from callboard._history.records import ChatDict, message_text
from callboard_protocol import EXTERNAL_ID_PREFIX, FORM_ID_PREFIX

_CLIENT_PREFIXES = (EXTERNAL_ID_PREFIX, FORM_ID_PREFIX)


class MessageRow(Protocol):
    """A stored message of the user or the assistant; `tool_calls` is a JSON list, OpenAI's form."""

    run_id: str
    role: str
    content: str | None
    tool_calls: str | None
    place: int | None


@dataclass(frozen=True, slots=True)
class StoredRound:
    """A round as it is stored: what the model said before it called, and its calls, as OpenAI has them."""

    text: str
    calls: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A run as it is stored: the question (its text), the rounds of calls, the last text.

    `place` counts the questions up to this one; None where it is not known.
    """

    run_id: str
    question: str
    rounds: tuple[StoredRound, ...]
    last_text: str
    place: int | None = None

    @property
    def text(self) -> str:
        """The text of all that was said, as a client reads it that is told of no calls."""
        return "".join([*(one.text for one in self.rounds), self.last_text])

    @property
    def call_ids(self) -> frozenset[str]:
        """The ids of its calls."""
        return frozenset(call["id"] for one in self.rounds for call in one.calls)

    def as_messages(self, without: frozenset[str] = frozenset()) -> list[ChatDict]:
        """Return the assistant's messages, but for calls whose ids are in `without`.

        `replay` gives them their results.
        """
        said: list[ChatDict] = []
        for one in self.rounds:
            calls = [call for call in one.calls if call["id"] not in without]
            if calls or one.text:
                entry = {"role": "assistant", "content": one.text or None}
                said.append({**entry, "tool_calls": calls} if calls else entry)
        if self.last_text:
            said.append({"role": "assistant", "content": self.last_text})
        return said


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """The run that a response went on from itself, and what its request brought, as a JSON list of messages."""

    previous: str | None
    input: str


def join_responses(run_id: str, kept: Mapping[str, KeptResponse], turns: Sequence[StoredTurn]) -> list[ChatDict]:
    """Return the conversation up to that run's end; `replay` gives the calls in it their results."""
    left = dict(kept)
    answers = {turn.run_id: turn.as_messages() for turn in turns}
    backwards: list[list[ChatDict]] = []
    at: str | None = run_id
    while at is not None and (response := left.pop(at, None)):
        backwards.append([*json.loads(response.input), *answers.get(at, [])])
        at = response.previous
    return [message for part in reversed(backwards) for message in part]


def read_turns(rows: Iterable[MessageRow]) -> list[StoredTurn]:
    """Return the turns that these messages of users and the assistant are, oldest first."""
    by_run: defaultdict[str, list[MessageRow]] = defaultdict(list)
    for row in rows:
        by_run[row.run_id].append(row)
    return [_read_turn(run_id, rows) for run_id, rows in by_run.items()]


def _read_turn(run_id: str, rows: Sequence[MessageRow]) -> StoredTurn:
    question = ""
    last_text = ""
    rounds = []
    place: int | None = None
    for row in rows:
        if row.role == "user":
            question = message_text(row.content)
            place = row.place
        elif row.tool_calls:
            rounds.append(StoredRound(row.content or "", tuple(json.loads(row.tool_calls))))
        else:
            last_text = row.content or ""
    return StoredTurn(run_id, question, tuple(rounds), last_text, place)


def lacks_calls(sent: Sequence[ChatDict], *, by_text: bool) -> bool:
    """Return whether the store may know of calls that these messages do not tell."""
    return any((by_text and _is_bare(message)) or _list_external_ids(message) for message in sent)


def restore_calls(sent: Sequence[ChatDict], turns: Sequence[StoredTurn], *, by_text: bool) -> list[ChatDict]:
    """Return `sent` with the calls of `turns` that it does not tell.

    `by_text`: the client may not have been told of calls, so a turn is looked for by its text as well.

    A turn is known by the id of a call that the client ran. One of which the text alone came is
    known by that text, without regard to white space, and by its place: turns that are told of
    later ran later. Of several alike those that stand as many questions from the beginning go before
    others, then those with the same question, then the last.
    """
    told = frozenset(call["id"] for message in sent for call in message.get("tool_calls") or ())
    whole = _restore_rounds_of_external_calls(sent, turns, told)
    if not by_text:
        return whole
    # What was put in is told now: no other answer stands for it.
    told |= {call["id"] for message in whole for call in message.get("tool_calls") or ()}
    return _restore_turns_of_bare_texts(whole, turns, told)


def _restore_rounds_of_external_calls(
    sent: Sequence[ChatDict], turns: Sequence[StoredTurn], told: frozenset[str]
) -> list[ChatDict]:
    turn_of = {call_id: turn for turn in turns for call_id in turn.call_ids}
    turn_of |= {f"{FORM_ID_PREFIX}{turn.run_id}": turn for turn in turns}
    whole: list[ChatDict] = []
    for message in sent:
        ids = _list_external_ids(message)
        turn = turn_of.get(ids[0]) if ids else None
        if turn is None or turn.call_ids <= told:
            whole.append(message)
            continue
        elsewhere = told - {call["id"] for call in message["tool_calls"]}
        if ids[0].startswith(FORM_ID_PREFIX):
            # The last text was told as this call.
            whole += [*replace(turn, last_text="").as_messages(elsewhere), {**message, "content": None}]
        else:
            whole += turn.as_messages(elsewhere)
    return whole


def _restore_turns_of_bare_texts(
    sent: Sequence[ChatDict], turns: Sequence[StoredTurn], told: frozenset[str]
) -> list[ChatDict]:
    places = _TurnIndex(turns, told)
    backwards: list[list[ChatDict]] = []
    groups = [(is_bare, list(group)) for is_bare, group in groupby(sent, _is_bare)]
    questions = (sum(message["role"] == "user" for message in group) for _, group in groups)
    asked = list(accumulate(questions, initial=0))
    end = len(turns)
    for number in range(len(groups) - 1, -1, -1):
        is_bare, group = groups[number]
        before = groups[number - 1][1][-1] if number else None
        if is_bare and not _ends_told_calls(before):
            text = "".join(message["content"] for message in group)
            found = places.find(text, _read_question(before), asked[number], end)
            if found is not None:
                end = found
                group = turns[found].as_messages() if turns[found].rounds else group
        backwards.append(group)
    return [message for group in reversed(backwards) for message in group]


class _TurnIndex:
    """The places of turns, by their words, among the turns of which no call is told."""

    def __init__(self, turns: Sequence[StoredTurn], told: frozenset[str]) -> None:
        self._numbers: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
        for number, turn in enumerate(turns):
            if turn.call_ids.isdisjoint(told) and (text := _drop_space(turn.text)):
                for key in _list_keys(text, _drop_space(turn.question), turn.place):
                    self._numbers[key].append(number)

    def find(self, text: str, question: str, asked: int, end: int) -> int | None:
        """Return the last turn before `end` of those that fit best; `asked` questions stand before its answer."""
        for key in _list_keys(_drop_space(text), _drop_space(question), asked):
            numbers = self._numbers.get(key, ())
            if count := bisect_left(numbers, end):
                return numbers[count - 1]
        return None


def _list_keys(text: str, question: str, place: int | None) -> Iterator[tuple[object, ...]]:
    """Yield the keys by which two turns are found to be alike, the most telling first."""
    yield text, question, place
    yield text, place
    yield text, question, "anywhere"
    yield text, "anywhere"


def _drop_space(text: str) -> str:
    return "".join(text.split())


def _is_bare(message: ChatDict) -> bool:
    return message["role"] == "assistant" and not message.get("tool_calls") and isinstance(message.get("content"), str)


def _list_external_ids(message: ChatDict) -> list[str]:
    ids = (call.get("id") or "" for call in message.get("tool_calls") or ())
    return [one for one in ids if one.startswith(_CLIENT_PREFIXES)]


def _ends_told_calls(before: ChatDict | None) -> bool:
    """Return whether what follows `before` is the end of a turn whose calls are told.

    After the result of a client's own call it is another run's.
    """
    if before is None or before["role"] != "tool":
        return False
    return not (before.get("tool_call_id") or "").startswith(_CLIENT_PREFIXES)


def _read_question(before: ChatDict | None) -> str:
    content = before.get("content") if before and before["role"] == "user" else None
    if isinstance(content, list):
        return "".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return content or ""
