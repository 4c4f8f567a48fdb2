"""What the model is told of earlier turns."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard._history import HistoryCall, replay

USER = {"role": "user", "content": "hi"}


def call(call_id: str, arguments: str = "{}", name: str = "f") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(*calls: dict[str, Any], text: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls)}


def answers(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def said(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


def stored(
    call_id: str,
    result: str | None,
    arguments: str = "{}",
    place: tuple[int, int] = (0, 0),
    message_id: str | None = None,
) -> HistoryCall:
    return HistoryCall(call_id, "f", arguments, *place, message_id=message_id, result=result)


TEXT = {"type": "text", "text": "c"}
HALF_ANSWERED = [USER, asks(call("a"), call("b"), text="Both."), answers("b", "2"), said("Done.")]
TWICE = [USER, asks(call("a")), answers("a", "cut …"), said("One."), USER, asks(call("a")), answers("a", "two")]
BARE = [USER, said("x", id="m")]

# By name: what was sent, what is stored, and what the model is told, which is what was sent where it is None.
REPLAYS: dict[str, tuple[list[dict[str, Any]], list[HistoryCall], list[dict[str, Any]] | None]] = {
    "stored arguments and results replace what was sent": (
        [USER, asks(call("a", '{"x":1}'), text="Let me look."), answers("a", "cut …"), said("Done."), USER],
        [stored("a", "whole", '{ "x": 1 }')],
        [USER, asks(call("a", '{ "x": 1 }'), text="Let me look."), answers("a", "whole"), said("Done."), USER],
    ),
    "a call that the store does not know stays": ([USER, asks(call("a", '{"x":1}')), answers("a", "shown")], [], None),
    "a result that only the store has is an answer, an empty one too": (
        [USER, asks(call("a"))],
        [stored("a", "")],
        [USER, asks(call("a")), answers("a", "")],
    ),
    "a message with only its id gets its rounds and keeps its text": (
        [USER, said("All three.", id="m"), USER],
        [
            stored("c", "3", place=(1, 0), message_id="m"),
            stored("b", "2", place=(0, 1), message_id="m"),
            stored("a", "1", '{"n": NaN}', place=(0, 0), message_id="m"),
            stored("z", "other", message_id="elsewhere"),
        ],
        [
            USER,
            asks(call("a", '{"n": NaN}'), call("b")),
            answers("a", "1"),
            answers("b", "2"),
            asks(call("c")),
            answers("c", "3"),
            said("All three."),
            USER,
        ],
    ),
    "an unanswered call is left out": (
        HALF_ANSWERED,
        [stored("a", None)],
        [USER, asks(call("b"), text="Both."), answers("b", "2"), said("Done.")],
    ),
    "an empty answer between questions is a turn without an answer": (
        [USER, said("", id="m"), USER],
        [stored("a", None, message_id="m")],
        [USER, said("(There was no answer before the next message.)"), USER],
    ),
    "texts and parts of questions are joined in order": (
        [{**USER, "content": content} for content in ("a", "b", [TEXT], None, "d")],
        [],
        [{**USER, "content": [{"type": "text", "text": "a\n\nb"}, TEXT, {"type": "text", "text": "d"}]}],
    ),
    "results without calls and calls without results are left out, texts stay, an empty answer at the end does not": (
        [answers("x", "?"), USER, asks(call("a"), text="Hello."), USER, said("")],
        [],
        [USER, said("Hello."), USER],
    ),
    "an id twice in a round is one call": (
        [USER, asks(call("a"), call("a")), answers("a", "1"), answers("a", "2")],
        [],
        [USER, asks(call("a")), answers("a", "1")],
    ),
    "a turn that was sent with its id and with its calls is replayed once": (
        [USER, asks(call("a")), answers("a", "cut …"), said("x", id="m")],
        [stored("a", "1", message_id="m")],
        [USER, asks(call("a")), answers("a", "1"), said("x")],
    ),
    "a later call with an id that was used keeps its content": (
        TWICE,
        [stored("a", "one")],
        [*TWICE[:2], answers("a", "one"), *TWICE[3:]],
    ),
    "calls of one answer are in the order of the model": (
        [USER, asks(call("a"), call("b"), call("a")), answers("a", "1"), answers("b", "2")],
        [stored("b", "2"), stored("a", "1", place=(0, 1))],
        [USER, asks(call("b"), call("a")), answers("b", "2"), answers("a", "1")],
    ),
}


@pytest.mark.parametrize(("sent", "records", "replayed"), REPLAYS.values(), ids=REPLAYS)
def test_messages_are_replayed_with_what_is_stored(
    sent: list[dict[str, Any]], records: list[HistoryCall], replayed: list[dict[str, Any]] | None
) -> None:
    before = copy.deepcopy(sent)
    assert replay(sent, records).messages == (before if replayed is None else replayed)
    assert sent == before


def test_a_call_that_is_to_run_again_stays_in_its_round_without_a_result() -> None:
    sent = [USER, asks(call("a"), call("b"), text="Both.")]
    known = [stored("a", "done"), stored("b", None, place=(0, 1))]
    assert replay(sent, known, ["b"]).messages == [USER, asks(call("a"), call("b"), text="Both."), answers("a", "done")]


@pytest.mark.parametrize("other", [call("a", '{"x":2}'), call("a", '{"x":1}', name="g")])
def test_a_call_of_another_model_with_a_stored_id_is_replayed_as_it_was_sent(other: dict[str, Any]) -> None:
    sent = [USER, asks(call("a", '{"x":1}')), answers("a", "cut …"), asks(other), answers("a", "another"), USER]
    replayed = replay(sent, [stored("a", "whole", '{"x":1}', message_id="m")]).messages
    assert [message["content"] for message in replayed if message["role"] == "tool"] == ["whole", "another"]
    assert [message["tool_calls"] for message in replayed if "tool_calls" in message] == [
        [call("a", '{"x":1}')],
        [other],
    ]


# Quadratic time would be minutes.
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("role", "content"), [("user", [{"type": "text", "text": "a"}]), ("system", "a" * 500)])
def test_many_messages_of_one_role_are_joined_in_linear_time(role: str, content: Any) -> None:
    [message] = replay([{"role": role, "content": content}] * 100_000, []).messages
    assert message["role"] == role


def test_empty_ids_get_a_new_one_the_same_on_both_sides() -> None:
    [_, first, one, two] = replay([USER, asks(call(""), call("")), answers("", "1"), answers("", "2")], []).messages
    ids = [entry["id"] for entry in first["tool_calls"]]
    assert all(ids)
    assert len(set(ids)) == 2
    assert [(one["tool_call_id"], one["content"]), (two["tool_call_id"], two["content"])] == [
        (ids[0], "1"),
        (ids[1], "2"),
    ]


def test_arguments_go_back_byte_for_byte_malformed_ones_too() -> None:
    for arguments, shown in (
        ('{ "a" :1,\n"b":"\\u00e4"}', '{"a":1,"b":"ä"}'),
        ('{ "a" :1,\n"b":"\\u00e4"}', '{"a":1,"b":'),
        ("{broken", "{}"),
        # No arguments are an empty object.
        ("", ""),
    ):
        sent = [USER, asks(call("a", shown)), answers("a", "1")]
        [_, asked, _] = replay(sent, [stored("a", "1", arguments)]).messages
        assert asked["tool_calls"][0]["function"]["arguments"] == (arguments or "{}")


@pytest.mark.parametrize(
    "answer",
    [
        [said("a", id="m")],
        [asks(call("a")), answers("a", "")],
        [asks(call("a", "{")), answers("a", "")],
    ],
)
def test_a_stored_call_is_inserted_once_however_often_its_id_is_sent(answer: list[dict[str, Any]]) -> None:
    sent = [USER, *answer] * 100
    replayed = str(replay(sent, [stored("a", "the result", '{"path": "the arguments', message_id="m")]).messages)
    assert (replayed.count("the result"), replayed.count("the arguments")) == (1, 1)


def test_source_numbers_and_their_sources_are_found_later_ones_win() -> None:
    records = [
        stored("a", '[{"source_number": 3, "title": "old"}, {"source_number": "7"}]'),
        stored("b", '[{"source_number": 3, "title": "new"}]', place=(1, 0)),
        stored("c", "[1, 2]", place=(2, 0)),
        stored("d", None, place=(3, 0)),
    ]
    result = replay([USER], records)
    assert result.sources == {3: {"source_number": 3, "title": "new"}, 7: {"source_number": "7"}}


ids = st.sampled_from(["", "a", "b", "c"])
any_message = st.one_of(
    st.just(USER),
    st.just({"role": "system", "content": "be kind"}),
    st.builds(said, st.text(max_size=3)),
    st.builds(lambda text, message_id: said(text, id=message_id), st.text(max_size=3), ids),
    st.builds(
        lambda calls, text: asks(*calls, text=text),
        st.lists(st.builds(call, ids, st.text(max_size=3)), min_size=1, max_size=3),
        st.none() | st.text(max_size=3),
    ),
    st.builds(answers, ids, st.text(max_size=3)),
)
any_record = st.builds(
    stored,
    ids.filter(bool),
    st.none() | st.text(max_size=3),
    st.text(max_size=3),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.none() | ids,
)


@given(st.lists(any_message, max_size=12), st.lists(any_record, max_size=6))
def test_whatever_was_sent_and_stored_every_call_has_its_answer_and_every_answer_its_call(
    messages: list[dict[str, Any]], records: list[HistoryCall]
) -> None:
    waiting: list[str] = []
    for message in replay(messages, records).messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            assert message["content"] is not None
            continue
        assert not waiting
        assert "id" not in message
        if "tool_calls" in message:
            waiting = [entry["id"] for entry in message["tool_calls"]]
            assert waiting
            assert all(waiting)
            assert len(set(waiting)) == len(waiting)
            assert all(entry["function"]["arguments"] for entry in message["tool_calls"])
    assert not waiting
