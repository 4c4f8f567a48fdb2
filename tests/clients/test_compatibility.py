"""Clients of OpenAI's responses, as their makers publish them: a call that the server has run is not run again."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.columns import CLIENTS, SHAPES, Client, Shape
from tests.clients.library import FOUND, LENT, NEXT, QUESTION, opened

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the first of some installs its packages


def cells() -> list[Any]:
    return [
        pytest.param(client, shape, id=f"{client.name}, {shape.name}", marks=pytest.mark.needs(*client.needs))
        for client in CLIENTS
        for shape in SHAPES
    ]


@pytest.mark.parametrize(("client", "shape"), cells())
async def test_a_client_makes_one_run_of_a_question_and_goes_on_from_it(
    tmp_path: Path, client: Client, shape: Shape
) -> None:
    async with opened(tmp_path / "server", shape.words, lent=shape.fails) as library:
        order = {
            "base_url": library.base_url,
            "headers": shape.headers,
            "questions": [QUESTION, NEXT],
            "streamed": shape.streamed,
            "by_id": shape.by_id,
        }
        said = await client.converse(order, tmp_path)
    assert said["own_calls"] == 0
    assert library.looked_up == list(shape.words)
    result = f"Error: {LENT}" if shape.fails else FOUND
    first, second = said["answers"]
    assert first.endswith(f"It is said: {result}.")
    assert second == "Quite."

    # Two for the question and its calls, one for the next question.
    assert len(library.endpoint.requests) == 3
    told = library.endpoint.requests[2]["messages"]
    if shape.activity == "none":
        assert [message["role"] for message in told] == ["user", "assistant", "user"]
        return
    question, asked, *results, answer, now = told
    assert [question["content"], now["content"]] == [QUESTION, NEXT]
    calls = asked["tool_calls"]
    assert {call["function"]["name"] for call in calls} == {"look_up"}
    assert tuple(json.loads(call["function"]["arguments"])["word"] for call in calls) == shape.words
    assert [(one["role"], one["tool_call_id"], one["content"]) for one in results] == [
        ("tool", call["id"], result) for call in calls
    ]
    assert answer["content"] == f"It is said: {result}."
