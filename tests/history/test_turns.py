"""Which stored turn an answer is that came as bare text, or with a client's own call alone. Pure."""

from typing import Any

import pytest

from callboard._history import (
    StoredRound,
    StoredTurn,
    insert_turns_by_client_call,
    insert_turns_by_text,
    lacks_calls,
)


def call(call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}


def stored(
    run_id: str, question: str, *call_ids: str, before: str = "", last: str = "Done.", place: Any = None
) -> StoredTurn:
    rounds = (StoredRound(before, tuple(map(call, call_ids))),) if call_ids else ()
    return StoredTurn(run_id, question, rounds, last, place)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str | None, *call_ids: str) -> dict[str, Any]:
    calls = {"tool_calls": list(map(call, call_ids))} if call_ids else {}
    return {"role": "assistant", "content": content, **calls}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "r"}


def ids(messages: list[dict[str, Any]]) -> list[str]:
    """The calls, in their order."""
    return [one["id"] for message in messages for one in message.get("tool_calls") or ()]


TWICE = [stored("1", "go", "a"), stored("2", "go", "b")]


@pytest.mark.parametrize(
    ("sent", "turns", "found"),
    [
        ([user("go"), assistant("Done."), user("go"), assistant("Done.")], TWICE, ["a", "b"]),
        ([user("go"), assistant("Done.")], TWICE, ["b"]),
        ([user("go"), assistant(" Do\nne. ")], TWICE[:1], ["a"]),
        ([user("go"), assistant("Done?")], TWICE, []),
        (
            [user([{"type": "text", "text": "go"}]), assistant("Done.")],
            [stored("1", "go", "a"), stored("2", "x", "b")],
            ["a"],
        ),
        ([user("go"), assistant("Done.")], [stored("1", "go", "a"), stored("2", "go")], []),
        ([user("go"), assistant("Do"), assistant("ne.")], TWICE[:1], ["a"]),
        ([user("go"), assistant("Let me see. Done.")], [stored("1", "go", "a", before="Let me see. ")], ["a"]),
        ([user("go"), assistant(None, "a"), result("a"), assistant("Done.")], TWICE, ["a"]),
        ([user("go"), assistant("Done.")], [stored("1", "go", "a", place=1), stored("2", "go", "b", place=2)], ["a"]),
        ([user("go"), assistant("Done.")], [], []),
        ([user("go"), assistant("")], [stored("1", "go", "a", last="")], []),
    ],
)
def test_an_answer_is_the_turn_of_its_text_place_and_question(
    sent: list[dict[str, Any]], turns: list[StoredTurn], found: list[str]
) -> None:
    assert ids(insert_turns_by_text(sent, turns)) == found


def test_a_turn_is_known_by_the_clients_own_call_and_what_is_told_elsewhere_is_not_told_twice() -> None:
    rounds = (StoredRound("", (call("a"),)), StoredRound("I ask.", (call("b"), call("call_x_1"))))
    turn = StoredTurn("1", "go", rounds, "")
    bare = [user("go"), assistant("I ask.", "call_x_1"), result("call_x_1")]
    assert ids(insert_turns_by_client_call(bare, [turn])) == ["a", "b", "call_x_1"]
    told = [user("go"), assistant(None, "a"), result("a"), *bare[1:]]
    assert ids(insert_turns_by_client_call(told, [turn])) == ["a", "b", "call_x_1"]
    assert insert_turns_by_text(told, []) == told


def test_calls_of_one_round_in_several_messages_bring_the_servers_calls_once() -> None:
    rounds = (StoredRound("I look.", (call("a"),)), StoredRound("", (call("b"), call("call_x_1"), call("call_x_2"))))
    sent = [user("go")]
    for one in ("call_x_1", "call_x_2"):
        sent += [assistant(None, one), result(one)]
    whole = insert_turns_by_client_call(sent, [StoredTurn("1", "go", rounds, "")])
    assert ids(whole) == ["a", "b", "call_x_1", "call_x_2"]
    assert [message["content"] for message in whole if message["content"]] == ["go", "I look.", "r", "r"]


def test_an_answer_in_the_form_of_a_call_keeps_that_call_at_its_end() -> None:
    turn = StoredTurn("run", "go", (StoredRound("", (call("a"),)),), '{"x": 1}')
    sent = [user("go"), assistant(None, "call_f_run"), result("call_f_run"), user("on")]
    whole = insert_turns_by_client_call(sent, [turn])
    assert ids(whole) == ["a", "call_f_run"]
    assert [message["content"] for message in whole] == ["go", None, None, "r", "on"]


def test_the_store_is_asked_only_where_it_may_know_more() -> None:
    assert lacks_calls([user("go"), assistant("Done.")], by_text=True)
    assert not lacks_calls([user("go"), assistant("Done.")], by_text=False)
    assert lacks_calls([assistant(None, "call_x_1")], by_text=False)
    assert not lacks_calls([user("go"), assistant(None, "a"), result("a")], by_text=True)


# Quadratic time would be minutes.
@pytest.mark.timeout(60)
def test_long_chats_of_like_answers_are_restored_in_linear_time() -> None:
    sent = [message for _ in range(20_000) for message in (user("go"), assistant("Done."))]
    kept = [stored(str(number), "go", f"c{number}", place=number + 1) for number in range(20_000)]
    assert ids(insert_turns_by_text(sent, kept)) == [f"c{number}" for number in range(20_000)]


def test_a_message_to_the_run_is_between_the_texts_of_its_answer() -> None:
    turn = StoredTurn("1", "go", (StoredRound("One. ", (), "And then?"),), "Two.")
    answer = {"role": "assistant", "content": "One. Two."}
    asked = {"role": "user", "content": "go"}
    assert insert_turns_by_text([asked, answer], [turn]) == [
        asked,
        {"role": "assistant", "content": "One. "},
        {"role": "user", "content": "And then?"},
        {"role": "assistant", "content": "Two."},
    ]
