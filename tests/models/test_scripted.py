"""The model that follows a script."""

import json

from callboard.models import (
    Finish,
    ModelDelta,
    ModelRequest,
    Pause,
    ScriptedModel,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
)


def ask(text: str) -> ModelRequest:
    return ModelRequest([{"role": "user", "content": text}])


async def answer(model: ScriptedModel, prompt: str) -> list[ModelDelta]:
    return [delta async for delta in model.stream(ask(prompt))]


async def test_a_script_sees_the_request_and_its_deltas_come_in_order() -> None:
    model = ScriptedModel(lambda request: [TextDelta(str(len(request.messages))), Pause(3600), TextDelta("!")], pace=0)
    assert await answer(model, "abcd") == [TextDelta("1"), TextDelta("!"), TokenUsage(1, 1, 2), Finish("stop")]


async def test_a_script_with_calls_finishes_with_tool_calls_and_its_own_ending_wins() -> None:
    deltas: list[ModelDelta] = [ToolCallDelta(0, "a", "f", "{}")]
    assert (await answer(ScriptedModel(lambda _: deltas), "x"))[-1] == Finish("tool_calls")
    deltas += [TokenUsage(1, 2, 3), Finish("length")]
    assert await answer(ScriptedModel(lambda _: deltas), "x") == deltas


async def test_the_built_in_model_answers_background_tasks_with_one_json_object() -> None:
    prompt = (
        "### Task:\nGenerate a concise, 3-5 word title with an emoji.\n### Chat History:\n<chat_history>\n"
        "USER: What plays at the Globe tonight, please?\nASSISTANT: Hamlet.\n</chat_history>"
    )
    said = "".join(delta.text for delta in await answer(ScriptedModel(), prompt) if isinstance(delta, TextDelta))
    assert json.loads(said) == {"title": "What plays at the Globe", "tags": ["callboard"], "follow_ups": []}
