"""Clients of OpenAI's responses, as their makers publish them: a call that the server has run is not run again."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.columns import CLIENTS, SHAPES, Client, Shape
from tests.clients.library import FOUND, LENT, NEXT, QUESTION, opened

pytestmark = pytest.mark.timeout(600)  # the first of some installs its packages


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
    async with opened(tmp_path / "server", lent=shape.fails) as library:
        order = {
            "base_url": library.base_url,
            "headers": shape.headers,
            "questions": [QUESTION, NEXT],
            "streamed": shape.streamed,
            "by_id": shape.by_id,
        }
        said = await client.converse(order, tmp_path)
    assert said["own_calls"] == 0
    assert library.looked_up == ["apple"]
    result = f"Error: {LENT}" if shape.fails else FOUND
    first, second = said["answers"]
    assert first.endswith(f"It is said: {result}.")
    assert second == "Quite."

    # Two for the question and its call, one for the next question.
    assert len(library.endpoint.requests) == 3
    told = library.endpoint.requests[2]["messages"]
    if shape.activity == "none":
        assert [message["role"] for message in told] == ["user", "assistant", "user"]
        return
    question, asked, answered, answer, now = told
    assert [question["content"], now["content"]] == [QUESTION, NEXT]
    [call] = asked["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("look_up", {"word": "apple"})
    assert (answered["role"], answered["tool_call_id"], answered["content"]) == ("tool", call["id"], result)
    assert answer["content"] == f"It is said: {result}."
