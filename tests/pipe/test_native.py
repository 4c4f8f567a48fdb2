"""The native rendering: Open WebUI's own items; every call has an output at the end."""

from typing import Any

from callboard_protocol import Done, Message, Reasoning, RunStart, ToolCallComplete, ToolCallStart
from tests.pipe.loader import PIPE, read_next_turn
from tests.pipe.owui_blocks import reduce_native
from tests.pipe.scripted_server import ScriptedServer, frames, stream
from tests.pipe.test_rendering import (
    completed,
    started,
    status,
)
from tests.pipe.test_stream import a_pipe, answer


def emitted(*steps: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The items after each step, a second apart."""
    transcript = PIPE.Transcript()
    emitter = PIPE.NativeEmitter()
    updates: list[dict[str, Any]] = []
    states = []
    for seconds, events in enumerate(steps, 100):
        for event in events:
            transcript.apply(event)
        updates += emitter.updates(transcript, seconds)
        states.append(reduce_native(updates))
    return states


def test_a_call_is_prepared_runs_and_has_its_output_with_its_end() -> None:
    delta = {"type": "tool_call_args_delta", "tool_call_id": "c", "tool_name": "draw", "delta": "{"}
    prepared, running, at_work, ended = emitted([delta], [started()], [status("Painting", 45)], [completed("a cat")])
    assert [item["status"] for [item] in (prepared, running, at_work)] == ["in_progress", "completed", "completed"]
    assert [item["name"] for [item] in (prepared, running, at_work)] == ["draw", "draw", "draw · 45% Painting"]
    call, output = ended
    assert (call["name"], call["status"], call["call_id"]) == ("draw", "completed", "c")
    assert output["call_id"] == "c"
    assert output["output"] == [{"type": "input_text", "text": "a cat"}]


def test_a_rounds_calls_stand_together_before_their_outputs_so_that_they_come_back_as_one_round() -> None:
    [items] = emitted(
        [
            started("a"),
            started("b"),
            completed("1", "a"),
            completed("2", "b"),
            started("c", round_index=1),
            completed("3", "c"),
        ]
    )
    assert [(item["type"].removeprefix("function_"), item["call_id"]) for item in items] == [
        ("call", "a"),
        ("call", "b"),
        ("call_output", "a"),
        ("call_output", "b"),
        ("call", "c"),
        ("call_output", "c"),
    ]


def test_a_change_sends_its_own_item_and_no_other() -> None:
    transcript = PIPE.Transcript()
    emitter = PIPE.NativeEmitter()
    for event in (started("a"), started("b"), completed("x" * 5000, "a")):
        transcript.apply(event)
    emitter.updates(transcript, 100)
    transcript.apply(status("half", 50, "b"))
    [update] = emitter.updates(transcript, 101)
    assert update["item"]["call_id"] == "b"
    assert emitter.updates(transcript, 102) == []


async def test_the_valve_chooses_it(server: ScriptedServer) -> None:
    events = (
        RunStart(run_id="r", agent="a"),
        Reasoning(content="Hm."),
        ToolCallStart(tool_call_id="c", tool_name="draw", tool_args={}),
        ToolCallComplete(tool_call_id="c", result="a cat"),
        Message(content="Done."),
        Done(),
    )
    server.on("POST", "runs", stream(frames(*events)))
    pipe = a_pipe(server.url)
    pipe.valves.RENDERING = "native"
    items = reduce_native(await answer(pipe))
    kinds = ["reasoning", "function_call", "function_call_output", "message"]
    assert [item["type"] for item in items] == kinds
    assert items[-1]["content"][0]["text"] == "Done."


def test_the_next_turns_messages_pass_with_the_models_words_alone() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "draw", "arguments": "{}"}}
    content = f"Look [2#source7]: {PIPE.GUARDED}details x>\n\n> **Callboard:** [a.pdf](/api/v1/files/1/content)\n"
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "a cat"},
        {"role": "assistant", "content": "Done.\n\n> **Callboard:** Stopped.\n"},
    ]
    assert read_next_turn(messages) == [
        {"role": "assistant", "content": "Look [source7]: <details x>", "tool_calls": [call]},
        messages[1],
        {"role": "assistant", "content": "Done."},
    ]
