"""Assembling native tool calls from the pieces that real endpoints send."""

import json
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard._formats import (
    ArgumentsPiece,
    Format,
    NativeReader,
    Piece,
    TextPiece,
    round_messages,
)
from callboard.calls import ToolCall, tool
from callboard.models import ModelDelta, TextDelta, ToolCallDelta
from callboard_formats import InvalidArguments
from callboard_formats.arguments import parse_arguments
from callboard_formats.grammar import build_grammar
from tests.serving import serving


class Claims:
    """Claims ids as a chat does: never empty, never twice."""

    def __init__(self, *seen: str) -> None:
        self._seen = set(seen)
        self._numbers = count()

    def __call__(self, candidate: str) -> str:
        while not candidate or candidate in self._seen:
            candidate = f"new_{next(self._numbers)}"
        self._seen.add(candidate)
        return candidate


def read(*deltas: ModelDelta, claims: Claims | None = None) -> tuple[list[Piece], list[ToolCall]]:
    reader = NativeReader(claims or Claims())
    pieces = [piece for delta in deltas for piece in reader.feed(delta)]
    return pieces + reader.finish(), reader.calls()


def part(
    index: int | None = None, call_id: str | None = None, name: str | None = None, arguments: str | None = None
) -> ToolCallDelta:
    return ToolCallDelta(index, call_id, name, arguments)


TWO = [ToolCall("a", "f", '{"x": 1}'), ToolCall("b", "g", '{"y": 2}')]

STREAMS_OF_TWO = {
    "as OpenAI does": [
        part(0, "a", "f", ""), part(0, arguments='{"x"'), part(0, arguments=": 1}"),
        part(1, "b", "g", ""), part(1, arguments='{"y": 2}'),
    ],
    "interleaved": [
        part(0, "a", "f"), part(1, "b", "g"), part(0, arguments='{"x"'), part(1, arguments='{"y"'),
        part(0, arguments=": 1}"), part(1, arguments=": 2}"),
    ],
    "no index": [
        part(None, "a", "f", '{"x"'), part(arguments=": 1}"), part(None, "b", "g"), part(arguments='{"y": 2}'),
    ],
    "no index, the id with each piece": [
        part(None, "a", "f", '{"x"'), part(None, "b", "g", '{"y"'),
        part(None, "a", arguments=": 1}"), part(None, "b", arguments=": 2}"),
    ],
    "all index 0": [
        part(0, "a", "f", '{"x"'), part(0, arguments=": 1}"), part(0, "b", "g"), part(0, arguments='{"y": 2}'),
    ],
    "whole calls, all index 0": [part(0, "a", "f", '{"x": 1}'), part(0, "b", "g", '{"y": 2}')],
    "the name with each piece": [
        part(0, "a", "f", '{"x"'), part(0, None, "f", ": 1}"), part(1, "b", "g", '{"y"'), part(1, "b", "g", ": 2}"),
    ],
    "a new id and the name with each piece": [
        part(0, "a", "f", '{"x"'), part(0, "a2", "f", ": 1}"), part(0, "b", "g", '{"y"'), part(0, "b2", "g", ": 2}"),
    ],
    "empty strings for what is absent": [
        part(0, "a", "f", ""), part(0, "", "", '{"x": 1}'), part(0, "", "", ""),
        part(1, "b", "g", ""), part(1, "", "", '{"y": 2}'), part(1, "", "", ""),
    ],
    "any value of the index, and empty pieces": [
        part(), ToolCallDelta("one", "a", "f", '{"x"'), ToolCallDelta("two", "b", "g", '{"y"'), part(),
        ToolCallDelta("one", None, None, ": 1}"), ToolCallDelta("two", None, None, ": 2}"), part(),
    ],
}  # fmt: skip


@pytest.mark.parametrize("deltas", STREAMS_OF_TWO.values(), ids=STREAMS_OF_TWO.keys())
def test_two_calls_are_separated_however_they_are_streamed(deltas: list[ToolCallDelta]) -> None:
    pieces, calls = read(*deltas)
    assert calls == TWO
    for call in calls:
        shown = [piece.text for piece in pieces if isinstance(piece, ArgumentsPiece) and piece.call_id == call.id]
        assert "".join(shown) == call.arguments_text


def test_two_calls_of_one_function_without_ids_are_separated_by_complete_arguments() -> None:
    _, calls = read(part(0, None, "f", '{"x": 1}'), part(0, None, "f", '{"x": 2}'))
    assert [call.arguments_text for call in calls] == ['{"x": 1}', '{"x": 2}']
    _, calls = read(part(0, None, "f", '{"x":'), part(0, None, "f", '{"y": 1}}'))
    assert [call.arguments_text for call in calls] == ['{"x":{"y": 1}}']
    _, calls = read(part(0, None, "f", '{"x": 1}'), part(0, None, "g", ""), part(0, arguments="{}"))
    assert [(call.name, call.arguments_text) for call in calls] == [("f", '{"x": 1}'), ("g", "{}")]


def whole(place: int, call_id: str | None, name: str | None, arguments: str | None) -> ToolCallDelta:
    return ToolCallDelta(place, call_id, name, arguments, is_whole=True)


ONE = [ToolCall("a", "f", '{"x": 1}')]

STREAMS_OF_ONE = {
    # https://github.com/vercel/ai/pull/15888, https://github.com/langchain-ai/langgraphjs/pull/2697
    "each piece with all of its arguments so far": [
        part(0, "a", "f", '{"x"'), part(0, "a", "f", '{"x": 1'), part(0, "a", "f", '{"x": 1}'),
    ],
    "each piece with all of its arguments so far, without a name": [
        part(0, "a", "f", ""), part(0, arguments='{"x"'), part(0, arguments='{"x": 1'), part(0, arguments='{"x": 1}'),
    ],
    # https://github.com/vllm-project/vllm/issues/51697
    "a bracket and then all of its arguments": [part(0, "a", "f", "{"), part(0, arguments='{"x": 1}')],
    "its arguments twice": [part(0, "a", "f", '{"x": 1}'), part(0, arguments='{"x": 1}')],
    "its arguments before its name": [part(None, "a", None, '{"x":'), part(None, "a", "f", " 1}")],
    "its arguments before its name, without an id": [part(0, None, None, '{"x":'), part(0, "a", "f", " 1}")],
    "an empty object before them": [part(0, "a", "f", "{}"), part(0, arguments='{"x":'), part(0, arguments=" 1}")],
    "an empty object in pieces": [part(0, "a", "f", "{"), part(0, arguments="} "), part(0, arguments='{"x": 1}')],
    "an empty object in one piece with them": [part(0, "a", "f", '{}{"x": 1}')],
    "again in full": [part(0, "a", "f", '{"x":'), part(0, arguments=" 1}"), part(0, "a", "f", '{"x": 1}')],
    "again in a whole message": [part(0, "a", "f", '{"x": 1}'), whole(0, "a", "f", '{"x": 1}')],
    "again with another id": [part(0, "a", "f", '{"x": 1}'), whole(0, "b", "f", '{"x":1}')],
    "completed by a whole message": [part(0, "a", "f", '{"x":'), whole(0, "a", "f", '{"x": 1}')],
    "its arguments only in a whole message": [part(0, "a", "f", ""), whole(0, "a", "f", '{"x": 1}')],
    "an empty object until the whole message": [part(0, "a", "f", "{}"), whole(0, "a", "f", '{"x": 1}')],
    "its name only in a whole message": [part(0, "a", None, '{"x": 1}'), whole(0, "a", "f", '{"x": 1}')],
}  # fmt: skip


@pytest.mark.parametrize("deltas", STREAMS_OF_ONE.values(), ids=STREAMS_OF_ONE.keys())
def test_one_call_is_one_however_it_is_streamed_and_repeated(deltas: list[ToolCallDelta]) -> None:
    assert read(*deltas)[1] == ONE


def test_two_calls_are_separated_if_each_piece_has_all_of_its_arguments_so_far() -> None:
    first = [part(0, "a", "f", '{"x"'), part(1, "b", "g", '{"y"')]
    assert read(*first, part(0, "a", "f", '{"x": 1}'), part(1, "b", "g", '{"y": 2}'))[1] == TWO


WHOLE_MESSAGES_OF_TWO = {
    "of both": [whole(0, "a", "f", '{"x": 1}'), whole(1, "b", "g", '{"y": 2}')],
    "of both twice": [whole(0, "a", "f", '{"x": 1}'), whole(1, "b", "g", '{"y": 2}')] * 2,
    "in another order": [whole(0, "b", "g", '{"y": 2}'), whole(1, "a", "f", '{"x": 1}')],
}


@pytest.mark.parametrize("repeated", WHOLE_MESSAGES_OF_TWO.values(), ids=WHOLE_MESSAGES_OF_TWO.keys())
@pytest.mark.parametrize("streamed", [TWO, ONE], ids=["streamed", "one of them streamed"])
def test_a_whole_message_adds_the_calls_that_were_not_streamed(
    streamed: list[ToolCall], repeated: list[ToolCallDelta]
) -> None:
    pieces = [part(n, call.id, call.name, call.arguments_text) for n, call in enumerate(streamed)]
    assert read(*pieces, *repeated)[1] == TWO


def test_equal_calls_are_as_many_as_in_the_whole_message() -> None:
    twice = [whole(0, None, "f", "{}"), whole(1, None, "f", "{}")]
    for streamed in ([], [part(0, "a", "f", "{}")], [part(0, "a", "f", "{}"), part(1, "b", "f", "{}")]):
        assert [call.arguments_text for call in read(*streamed, *twice)[1]] == ["{}", "{}"]


SIGNATURE = {"extra_content": "c2ln"}
SIGNED = {
    "before the arguments": [ToolCallDelta(0, "a", details=SIGNATURE), part(0, None, "f", '{"x": 1}')],
    "after them": [part(0, "a", "f", '{"x": 1}'), ToolCallDelta(0, details=SIGNATURE)],
    "in the call once more": [part(0, "a", "f", '{"x": 1}'), ToolCallDelta(0, "a", "f", '{"x": 1}', SIGNATURE)],
    "in a whole message": [part(0, "a", "f", '{"x": 1}'), ToolCallDelta(0, "a", "f", '{"x": 1}', SIGNATURE, True)],
}


@pytest.mark.parametrize("deltas", SIGNED.values(), ids=SIGNED.keys())
def test_the_signature_of_a_call_is_kept_wherever_it_comes(deltas: list[ToolCallDelta]) -> None:
    [call] = read(*deltas)[1]
    assert (call, call.details) == (ONE[0], SIGNATURE)


@pytest.mark.parametrize("names", [("get_", "weather"), ("get_weather", "get_weather"), ("get_", "get_weather")])
def test_a_name_that_is_repeated_grows_or_comes_in_pieces_is_one_name(names: tuple[str, str]) -> None:
    pieces, calls = read(*(part(0, "a", name, "") for name in names), part(0, arguments="{}"))
    assert [call.name for call in calls] == ["get_weather"]
    assert pieces == [ArgumentsPiece("a", "get_weather", "{}")]


def test_missing_repeated_and_known_ids_become_new_ones() -> None:
    _, calls = read(
        part(0, "seen", "f", "{}"), part(1, "a", "g", "{}"), part(2, "a", "h", "{}"), part(3, None, "i", "{}"),
        claims=Claims("seen"),
    )  # fmt: skip
    assert [call.name for call in calls] == ["f", "g", "h", "i"]
    assert len({call.id for call in calls} | {"seen"}) == 5
    assert calls[1].id == "a"


def test_a_late_id_is_used_if_no_arguments_were_shown_yet() -> None:
    _, calls = read(part(0, None, "f"), part(0, "late", None, "{}"))
    assert calls == [ToolCall("late", "f", "{}")]


def test_a_call_without_a_name_is_kept_and_one_without_anything_is_not() -> None:
    pieces, calls = read(part(0, "a"), part(1, "b", None, '{"x": 1}'))
    assert calls == [ToolCall("b", "", '{"x": 1}')]
    assert pieces == [ArgumentsPiece("b", "", '{"x": 1}')]


texts = st.none() | st.text(max_size=8)
deltas_of_any_kind = st.builds(
    ToolCallDelta, st.none() | st.integers(-1, 3), st.none() | st.sampled_from(["", "a", "b"]), texts, texts
)


@given(st.lists(deltas_of_any_kind, max_size=12))
def test_no_argument_text_is_lost_or_doubled(deltas: list[ToolCallDelta]) -> None:
    pieces, calls = read(*deltas)
    assert sorted("".join(call.arguments_text for call in calls)) == sorted(
        "".join(delta.arguments or "" for delta in deltas)
    )
    assert len({call.id for call in calls}) == len(calls)
    for call in calls:
        shown = [piece.text for piece in pieces if isinstance(piece, ArgumentsPiece) and piece.call_id == call.id]
        assert "".join(shown) == call.arguments_text


objects = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=10), max_size=4)


@given(st.lists(objects, min_size=1, max_size=4), st.data())
def test_arguments_cut_at_any_place_are_put_together(wanted: list[dict[str, object]], data: st.DataObject) -> None:
    deltas = []
    for index, arguments in enumerate(wanted):
        text = json.dumps(arguments)
        at = data.draw(st.integers(0, len(text)))
        deltas += [
            part(index, f"id{index}", "f", ""),
            part(index, arguments=text[:at]),
            part(index, arguments=text[at:]),
        ]
    _, calls = read(*deltas)
    assert [parse_arguments(call.arguments_text) for call in calls] == wanted


@pytest.mark.parametrize("text", ['{"a": 1', "[1]", "null", '{"a": NaN}', "[" * 100_000])
def test_arguments_that_are_no_json_object_are_refused_with_the_reason(text: str) -> None:
    with pytest.raises(InvalidArguments, match=r"JSON"):
        parse_arguments(text)
    assert parse_arguments(" \n") == {}


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def test_a_request_offers_the_tools_and_replaces_only_invalid_arguments() -> None:
    calls = [
        ToolCall("a", "add", '{"a":1,  "b":2}'),
        ToolCall("b", "add", ""),
        ToolCall("c", "add", "{oops"),
    ]
    messages = [{"role": "user", "content": "x"}, *round_messages("", calls, ["3", "Error: x", "Error: y"])]
    request = Format("native").request(messages, [add])
    assert request.tools == [add.schema()]
    sent = [call["function"]["arguments"] for call in request.messages[1]["tool_calls"]]
    assert sent == ['{"a":1,  "b":2}', "{}", "{}"]
    assert request.messages[1]["content"] is None
    assert [message["tool_call_id"] for message in request.messages[2:]] == ["a", "b", "c"]
    assert messages[1]["tool_calls"][2]["function"]["arguments"] == "{oops"


@pytest.mark.parametrize("asked", [Format("native"), Format(), Format("rescue")], ids=lambda one: one.name)
def test_text_that_was_held_back_comes_before_the_call_that_follows_it(asked: Format) -> None:
    reader = asked.reader([add], Claims())
    pieces = [
        *reader.feed(TextDelta("print('open')\n<tool_c")),
        *reader.feed(ToolCallDelta(index=0, id="c", name="add", arguments="{}")),
        *reader.feed(TextDelta("and after")),
        *reader.finish(),
    ]
    kinds = ["text" if isinstance(piece, TextPiece) else "call" for piece in pieces]
    first = kinds.index("call")
    before = "".join(piece.text for piece in pieces[:first] if isinstance(piece, TextPiece))
    assert before == "print('open')\n<tool_c"
    assert "".join(piece.text for piece in pieces[first:] if isinstance(piece, TextPiece)) == "and after"


async def test_patterns_are_compiled_before_the_first_answer(tmp_path: Path) -> None:
    build_grammar.cache_clear()
    async with serving(tmp_path):
        pass
    prepared = build_grammar.cache_info()
    Format().reader([add], str).feed(TextDelta("An answer."))
    assert build_grammar.cache_info().misses == prepared.misses > 0
