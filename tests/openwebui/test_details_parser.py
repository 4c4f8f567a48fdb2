"""Blocks in earlier answers become the original tool calls for the model."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.openwebui.details_parser import END, translate
from callboard_protocol import ChatMessage
from tests.pipe.loader import PIPE, read_next_turn

NASTY = [
    "plain words",
    "</details><img src=x onerror=alert(1)>",
    'a "quoted" & <b>bold</b> word',
    '<details type="tool_calls" done="false">\n<summary>Tool Executed</summary>\n</details>',
    "a <details open> b",
    "`code` and ``` in a line",
    '```html\n<details type="tool_calls" done="true" id="z">\n</details>\n```',
    "u\u2028v\u2029w\u0085x {{user}} {{{{char}}}}",
    "<think>hm</think>",
    "1. one\n2. two",
    "&lt;b&gt; &amp;quot;",
    '{"a": [1, 2]}',
    '\\n \\u2028 \\"',
    "Error: no",
]
texts = st.lists(st.sampled_from(NASTY), min_size=1, max_size=3).map("\n\n".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(NASTY) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b{{", "<"]), inner, max_size=2),
    max_leaves=4,
)
arguments = st.dictionaries(st.sampled_from(["path", "text\u2028", '"']), values, max_size=3) | st.sampled_from(NASTY)
results = st.sampled_from(NASTY) | st.text(max_size=20)
rounds = st.lists(st.tuples(st.sampled_from(["read_block", "draw"]), arguments, results), min_size=1, max_size=3)


def joined(parts: list[Any]) -> list[Any]:
    """Join adjacent texts."""
    turn: list[Any] = []
    for part in parts:
        if turn and isinstance(part, str) and isinstance(turn[-1], str):
            turn[-1] += "\n\n" + part
        else:
            turn.append(part)
    return turn


turns = st.lists(st.one_of(texts, rounds), min_size=1, max_size=6).map(joined)


def events_of(turn: list[Any]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for round_index, part in enumerate(turn):
        if isinstance(part, str):
            events.append({"type": "message", "content": part})
            continue
        for number, (name, args, _) in enumerate(part):
            call = {"tool_call_id": f"c{round_index}-{number}", "tool_name": name}
            events.append({"type": "tool_call_start", **call, "tool_args": args, "round_index": round_index})
        for number, (_, _, result) in enumerate(part):
            call_id = f"c{round_index}-{number}"
            events.append({"type": "tool_call_complete", "tool_call_id": call_id, "result": result})
    return [*events, {"type": "done", "finish_reason": "stop"}]


def rendered(turn: list[Any]) -> str:
    transcript = PIPE.Transcript()
    for event in events_of(turn):
        transcript.apply(event)
    text: str = transcript.render()
    return text


def messages_of(turn: list[Any]) -> list[dict[str, Any]]:
    """Return the messages that an agent would have after the turn."""
    messages: list[dict[str, Any]] = []
    text = ""
    for round_index, part in enumerate(turn):
        if isinstance(part, str):
            text += part
            continue
        calls = [
            {"id": f"c{round_index}-{n}", "type": "function", "function": {"name": name, "arguments": args}}
            for n, (name, args, _) in enumerate(part)
        ]
        messages.append({"role": "assistant", "content": text or None, "tool_calls": calls})
        messages += [
            {"role": "tool", "tool_call_id": f"c{round_index}-{n}", "content": result}
            for n, (_, _, result) in enumerate(part)
        ]
        text = ""
    return messages + ([{"role": "assistant", "content": text}] if text else [])


def with_read_arguments(messages: list[dict[str, Any]], turn: list[Any]) -> list[dict[str, Any]]:
    """Return the messages with arguments as values, because white space may differ. Malformed text is kept."""
    malformed = {
        f"c{index}-{n}"
        for index, part in enumerate(turn)
        if not isinstance(part, str)
        for n, (_, args, _) in enumerate(part)
        if isinstance(args, str)
    }
    for message in messages:
        for call in message.get("tool_calls", ()):
            if call["id"] not in malformed:
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return messages


@given(turns)
def test_drawn_blocks_are_read_back_unchanged(turn: list[Any]) -> None:
    translated = read_next_turn([{"role": "assistant", "content": rendered(turn)}])
    assert with_read_arguments(translated, turn) == messages_of(turn)


@given(turns)
def test_a_stripped_answer_is_read_back(turn: list[Any]) -> None:
    """Open WebUI strips the last item, so a group at the end loses the blank line before it."""
    translated = read_next_turn([{"role": "assistant", "content": rendered(turn).strip()}])
    assert with_read_arguments(translated, turn) == messages_of(turn)


def test_a_call_that_never_ended_has_no_tool_message() -> None:
    transcript = PIPE.Transcript()
    transcript.apply({"type": "tool_call_start", "tool_call_id": "c", "tool_name": "draw", "tool_args": {}})
    transcript.apply({"type": "tool:status", "tool_call_id": "c", "data": {"message": "hm", "progress": 4}})
    [message] = read_next_turn([{"role": "assistant", "content": transcript.render()}])
    assert message["tool_calls"][0]["function"]["name"] == "draw"


FROM_TEXT = {"type": "tool:status", "tool_call_id": "c", "data": {"status": "from_text", "message": "read"}}


@pytest.mark.parametrize("ends", [True, False])
def test_the_label_of_a_call_from_text_is_removed_from_the_tools_name(ends: bool) -> None:
    transcript = PIPE.Transcript()
    events = [
        {"type": "tool_call_start", "tool_call_id": "c", "tool_name": "draw", "tool_args": {}},
        FROM_TEXT,
        {"type": "tool:status", "tool_call_id": "c", "data": {"message": "hm", "progress": 4}},
        {"type": "tool_call_complete", "tool_call_id": "c", "result": "fine"},
    ]
    for event in events if ends else events[:3]:
        transcript.apply(event)
    assert "draw · from text" in transcript.render()
    message = read_next_turn([{"role": "assistant", "content": transcript.render()}])[0]
    assert message["tool_calls"][0]["function"]["name"] == "draw"


@pytest.mark.parametrize("shown", ["draw", "draw · from text", "draw · from text · 4% hm", "draw · 4% hm"])
@pytest.mark.parametrize("content", [None, "", "Well.", "> **Callboard:** Stopped."])
def test_labels_are_removed_from_the_names_of_native_calls(shown: str, content: str | None) -> None:
    function = {"name": shown, "arguments": "{}"}
    sent = {"role": "assistant", "content": content, "tool_calls": [{"id": "c", "function": function}]}
    [message] = read_next_turn([sent])
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["draw"]
    assert (message.get("content") or "") == ("" if content and content.startswith(">") else content or "")


def test_notices_and_reasoning_are_removed() -> None:
    transcript = PIPE.Transcript()
    transcript.apply({"type": "message", "content": "Words."})
    transcript.apply({"type": "done", "finish_reason": "length"})
    reasoning = '<details type="reasoning" done="true" duration="3">\n<summary>Thought</summary>\n> hm\n</details>\n'
    assert "length limit" in transcript.render()
    assert read_next_turn([{"role": "assistant", "content": reasoning + transcript.render()}]) == [
        {"role": "assistant", "content": "Words."}
    ]


def test_a_result_in_the_body_of_a_block_is_read() -> None:
    block = '<details type="tool_calls" done="true" id="c" name="f">\n<summary>Ran</summary>\n&lt;b&gt;\n</details>'
    assert read_next_turn([{"role": "assistant", "content": block}])[1]["content"] == "<b>"


NAMELESS = [
    f'<details type="tool_calls" done="true" id="c" arguments="{{}}" result="r">\n<summary>Ran</summary>\n{END}',
    '<details type="tool_calls" done="true" name="">\n</details>',
    '<details type="tool_calls" done="true" name="&#1;">\n</details>',
    # The form of Open WebUI before 0.6.5.
    f'<details type="tool_calls" done="true" content="[{{&quot;id&quot;: &quot;c&quot;}}]" results="[]">\n{END}',
]


@pytest.mark.parametrize("block", NAMELESS)
def test_a_block_that_names_no_tool_is_text(block: str) -> None:
    message = ChatMessage(role="assistant", content=f"See:\n{block}\nok")
    assert translate([message]) == (message,)


def test_parts_of_a_message_are_translated_as_well() -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    parts = [{"type": "text", "text": rendered([[("f", {}, "r")]])}, image]
    translated = read_next_turn([{"role": "assistant", "content": parts}])
    assert translated[0] == {"role": "assistant", "content": [image]}
    assert translated[2] == {"role": "tool", "tool_call_id": "c0-0", "content": "r"}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": rendered([[("f", {}, "r")]])},
        {"role": "tool", "tool_call_id": "c", "content": '<details type="tool_calls">'},
        {"role": "assistant", "content": "<details", "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
        {"role": "assistant", "content": "plain", "extra": 1},
        {"role": "assistant", "content": [{"type": "text", "text": "plain"}]},
        {"role": "assistant", "content": None},
        {"role": "assistant"},
    ],
)
def test_every_other_message_stays_as_it_is(message: dict[str, Any]) -> None:
    before = ChatMessage.model_validate(message)
    assert translate([before]) == (before,)


MEGABYTE = 1_000_000
HOSTILE = [
    "<details ",
    "<details \n",
    '<details type="tool_calls">\n',
    '<details type="tool_calls" ',
    '<details type="tool_calls" a="',
    "a=",
    "a",
    " ",
    "</details>",
    "</details>\n",
    "&lt;details",
    "```\n",
    "- ```\n",
    "`",
    "<!--\n",
    "> **Callboard:** \n",
    '<details type="tool_calls">\n</details>\n',
    "- ",
    "1. ",
]


# Quadratic time would be minutes.
@pytest.mark.timeout(120)
@pytest.mark.parametrize("prefix", ["", "<details ", '<details type="tool_calls" '])
@pytest.mark.parametrize("piece", HOSTILE)
def test_a_megabyte_of_anything_is_read_in_linear_time(prefix: str, piece: str) -> None:
    content = prefix + piece * (MEGABYTE // len(piece)) + " > <details"
    assert read_next_turn([{"role": "assistant", "content": content}])


@pytest.mark.timeout(120)
def test_many_tags_before_one_end_are_read_in_linear_time() -> None:
    content = '<details type="tool_calls">\n' * 400_000 + END
    assert read_next_turn([{"role": "assistant", "content": content}])


@given(st.lists(st.sampled_from([*HOSTILE, *NASTY, "\n", '"', ">", "<summary>", "</summary>"])).map("".join))
def test_no_text_raises(content: str) -> None:
    read_next_turn([{"role": "assistant", "content": content}])
