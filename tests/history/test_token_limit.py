"""A history that keeps to a number of tokens."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callboard._history import replay
from callboard._history.token_limit import estimate_tokens, limit_tokens

SYSTEM = {"role": "system", "content": "be kind"}


def turn(number: int, result: str | list[dict[str, Any]] = "r" * 4000) -> list[dict[str, Any]]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [
        {"role": "user", "content": f"question {number}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result},
        {"role": "assistant", "content": f"answer {number}"},
    ]


def test_oldest_turns_are_dropped_until_it_fits_and_the_newest_stays() -> None:
    messages = [SYSTEM, *turn(1), *turn(2), *turn(3)]
    last = sum(map(estimate_tokens, [SYSTEM, *turn(3)]))
    for limit in (0, sum(map(estimate_tokens, messages))):
        assert limit_tokens(messages, limit) == (messages, [])
    for limit in (1, last):
        assert limit_tokens(messages, limit) == ([SYSTEM, *turn(3)], [*turn(1), *turn(2)])


def test_old_results_are_shortened_first_with_a_visible_marker() -> None:
    messages = [SYSTEM, *turn(1), *turn(2), *turn(3)]
    kept, dropped = limit_tokens(messages, sum(map(estimate_tokens, messages)) - 500)
    assert dropped == []
    assert [message["role"] for message in kept] == [message["role"] for message in messages]
    assert kept[3]["content"] == "r" * 400 + "\n[… 3,600 more characters of this older result are left out]"
    assert kept[7] == messages[7]


def test_a_result_with_an_image_does_not_end_its_turn() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    text = {"type": "text", "text": "the page"}
    newest = replay([SYSTEM, *turn(1), *turn(2, [text, image])], []).messages
    assert [message["role"] for message in newest[-5:]] == ["user", "assistant", "tool", "user", "assistant"]
    assert limit_tokens(newest, 1)[0] == [SYSTEM, *newest[-5:]]


def test_an_image_counts_as_an_image_and_not_as_its_encoding() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}
    assert estimate_tokens({"role": "user", "content": [image, {"type": "text", "text": "what is it?"}]}) < 1100


@given(st.lists(st.text(max_size=3000), max_size=6), st.integers(0, 3000))
def test_a_call_and_its_answer_are_never_parted(results: list[str], max_tokens: int) -> None:
    messages = [SYSTEM, *(message for number, result in enumerate(results) for message in turn(number, result))]
    kept, _ = limit_tokens(messages, max_tokens)
    calls = [call["id"] for message in kept for call in message.get("tool_calls", ())]
    assert [message["tool_call_id"] for message in kept if message["role"] == "tool"] == calls
    assert kept[0] == SYSTEM
    if results:
        assert kept[-4:] == turn(len(results) - 1, results[-1])
