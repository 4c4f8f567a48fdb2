"""Reasoning is drawn as Open WebUI's reasoning block; its text can neither imitate nor break a block."""

import html
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.pipe.loader import PIPE, read_next_turn
from tests.pipe.owui_blocks import ATTRIBUTE, OPEN_TAG, details_end, reduce_native, tool_blocks
from tests.pipe.test_rendering import FAKE, TEXTS, completed, message, started


def reasoning(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "content": text}


class Clock:
    """Time as the test says."""

    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def thoughts(text: str) -> list[tuple[dict[str, str], str]]:
    """The reasoning blocks that are drawn: their attributes, and the Markdown inside as the browser decodes it."""
    found = []
    position = 0
    while (start := text.find("<details", position)) >= 0:
        tag = OPEN_TAG.match(text, start)
        end = details_end(text, start)
        assert tag
        assert end
        attributes = dict(ATTRIBUTE.findall(tag[1]))
        if attributes["type"] == "reasoning":
            body = text[tag.end() : end].removeprefix("<summary>Thought</summary>\n").removesuffix("\n</details>")
            found.append((attributes, html.unescape(body)))
        position = end
    return found


def test_reasoning_runs_until_the_first_word_and_says_how_long_it_took() -> None:
    clock = Clock()
    transcript = PIPE.Transcript()
    transcript.clock = clock
    transcript.apply(reasoning("First\n"))
    transcript.apply(reasoning("then"))
    [(attributes, body)] = thoughts(transcript.render())
    assert attributes == {"type": "reasoning", "done": "false"}
    assert body == "> First\n> then"
    clock.seconds += 7.4
    transcript.apply(message("So"))
    [(attributes, body)] = thoughts(transcript.render())
    assert attributes == {"type": "reasoning", "done": "true", "duration": "7"}
    assert transcript.render().endswith("</details>\n\nSo")


def test_reasoning_between_calls_stands_between_them_in_one_group() -> None:
    transcript = PIPE.Transcript()
    for event in (reasoning("a"), started("1"), completed("x", "1"), reasoning("b"), started("2"), completed("y", "2")):
        transcript.apply(event)
    text = transcript.render()
    kinds = [line.split('"')[1] for line in text.splitlines() if line.startswith("<details")]
    assert kinds == ["reasoning", "tool_calls", "reasoning", "tool_calls"]
    assert text.count("</details>\n<details") == 3
    assert [attributes["done"] for attributes, _ in thoughts(text)] == ["true", "true"]


@given(st.lists(st.sampled_from([*TEXTS, FAKE, "> ", "\r", "</details>\n"]), min_size=1))
def test_no_reasoning_fakes_a_block_or_breaks_one(parts: list[str]) -> None:
    transcript = PIPE.Transcript()
    for event in [reasoning("x"), *map(reasoning, parts), started(), completed("fine")]:
        transcript.apply(event)
    [block] = tool_blocks(transcript.render())
    assert block.value("result") == "fine"
    [(_, body)] = thoughts(transcript.render())
    assert all(line.startswith("> ") for line in body.splitlines())
    # The body is Markdown once more: a block in it would be drawn inside the thought.
    assert "<details " not in body
    emitter = PIPE.NativeEmitter()
    [thought, call, _] = reduce_native(emitter.updates(transcript, 100))
    assert "<details " not in thought["content"][0]["text"]
    assert call["type"] == "function_call"


def test_reasoning_is_removed_on_the_next_turn() -> None:
    transcript = PIPE.Transcript()
    for event in (
        reasoning("a secret"),
        message("Let me see."),
        reasoning("b"),
        started(round_index=1),
        completed("r"),
    ):
        transcript.apply(event)
    first, second = read_next_turn([{"role": "assistant", "content": transcript.render()}])
    assert (first["content"], first["tool_calls"][0]["id"]) == ("Let me see.", "c")
    assert second["content"] == "r"


def test_native_reasoning_is_an_item_with_its_duration() -> None:
    clock = Clock()
    transcript = PIPE.Transcript()
    emitter = PIPE.NativeEmitter()
    transcript.clock = clock
    transcript.apply(reasoning("Hm"))
    updates = emitter.updates(transcript, 100)
    [item] = reduce_native(updates)
    assert (item["status"], item["content"][0]["text"]) == ("in_progress", "Hm")
    assert "duration" not in item
    clock.seconds += 65
    transcript.apply(message("So"))
    thought, text = reduce_native(updates + emitter.updates(transcript, 101))
    assert (thought["status"], thought["duration"]) == ("completed", 65)
    assert text["content"][0]["text"] == "So"


def test_long_reasoning_is_sent_less_often() -> None:
    transcript = PIPE.Transcript()
    emitter = PIPE.StreamEmitter()
    transcript.apply(reasoning("x" * 200_000))
    emitter.updates(transcript, 100)
    transcript.apply(reasoning("y"))
    assert emitter.updates(transcript, 100.2) == []
    assert emitter.due_at_seconds > 100.4
    assert emitter.updates(transcript, emitter.due_at_seconds)
