"""Functions that a client of OpenAI's API offers: called, answered by the next request, or the form of the answer."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from callboard._formats import ToolFormat
from callboard.agents import Agent
from callboard.calls import tool
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta
from callboard.runs.conversation import NO_RESULT
from callboard.skills import Skill
from tests.loop.conftest import wants
from tests.openai_client import EVERYTHING, QUESTION, asking

IGNORED = "x-callboard-tools-ignored"


def function(name: str = "open_door", **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties or {"room": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": parameters}}


def as_response_tool(offered: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", **offered["function"]}


@tool
async def look_up(word: str) -> str:
    """Looks a word up."""
    return f"{word} is a fruit"


class House:
    """An agent with one tool of its own, whose model answers from a list; `asked` is each of its requests."""

    def __init__(self, *answers: Iterable[ModelDelta], tool_format: ToolFormat | None = None) -> None:
        self.asked: list[ModelRequest] = []
        self._answers = iter(answers)
        skill = Skill("words", "Words.", tools=(look_up,))
        self.agent = Agent("house", skills=(skill,), model=ScriptedModel(self._script), tool_format=tool_format)

    def _script(self, request: ModelRequest) -> Iterable[ModelDelta]:
        self.asked.append(request)
        return next(self._answers)

    def told(self) -> list[tuple[str, Any]]:
        """What the model was sent last: who said it, and the text, or the names that were called."""
        return [
            (
                message["role"],
                [call["function"]["name"] for call in message.get("tool_calls") or ()] or message["content"],
            )
            for message in self.asked[-1].messages
        ]


async def complete(client: AsyncOpenAI, messages: Any = QUESTION, model: str = "house", **fields: Any) -> Any:
    return await client.chat.completions.create(model=model, messages=messages, **fields)


def as_sent_back(message: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": message.content, "tool_calls": [c.model_dump() for c in message.tool_calls]}


def result(call: Any, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": content}


BOTH: list[ModelDelta] = [
    TextDelta("I see."),
    wants("look_up", {"word": "apple"}),
    wants("open_door", '{ "room":"attic" }', index=1),
]


async def test_a_call_of_an_offered_function_ends_the_run_and_its_result_goes_on_with_it(tmp_path: Path) -> None:
    house = House([wants("look_up", {"word": "pear"})], BOTH, [TextDelta("The door is open.")])
    async with asking(tmp_path, house.agent) as (_, client):
        first = await complete(client, tools=[function()])
        [choice] = first.choices
        [call] = choice.message.tool_calls
        asked = [*QUESTION, as_sent_back(choice.message), result(call, "open")]
        second = await complete(client, asked, tools=[function()])
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I see.")
    assert (call.function.name, call.function.arguments) == ("open_door", '{ "room":"attic" }')
    assert [one["function"]["name"] for one in house.asked[0].tools] == ["look_up", "open_door"]
    # The client was told of its own call alone: the model is told of all, as it was.
    assert house.told() == [
        ("user", "What do apple and pear mean?"),
        ("assistant", ["look_up"]),
        ("tool", "pear is a fruit"),
        ("assistant", ["look_up", "open_door"]),
        ("tool", "apple is a fruit"),
        ("tool", "open"),
    ]
    assert [one["content"] for one in house.asked[-1].messages if one.get("tool_calls")] == [None, "I see."]
    assert (second.choices[0].message.content, second.choices[0].finish_reason) == ("The door is open.", "stop")


async def test_each_call_of_the_client_has_a_chunk_of_the_stream_for_itself(tmp_path: Path) -> None:
    """LlamaIndex reads only the first call of a chunk."""
    house = House([wants("open_door", {"room": room}, index=index) for index, room in enumerate(("attic", "hall"))])
    async with asking(tmp_path, house.agent) as (_, client):
        chunks = [chunk async for chunk in await complete(client, tools=[function()], stream=True)]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    told = [calls for chunk in chunks if (calls := chunk.choices[0].delta.tool_calls)]
    assert [[(call.index, call.function.arguments) for call in calls] for calls in told] == [
        [(0, '{"room": "attic"}')],
        [(1, '{"room": "hall"}')],
    ]


async def test_arguments_larger_than_a_frame_come_whole(tmp_path: Path) -> None:
    house = House([wants("open_door", {"room": "é" * 100_000})])
    async with asking(tmp_path, house.agent) as (_, client):
        answer = await complete(client, tools=[function()])
    [call] = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"room": "é" * 100_000}


async def test_the_call_waits_in_the_store_and_is_ended_by_its_result(tmp_path: Path) -> None:
    house = House(BOTH, [TextDelta("Done.")])
    in_chat: Any = {"extra_body": {"callboard": {"chat_id": "c"}}}
    async with asking(tmp_path, house.agent) as (service, client):
        first = await complete(client, tools=[function()], **in_chat)
        waiting = await stored(service)
        await service.state.store.close_interrupted_calls()
        [call] = first.choices[0].message.tool_calls
        asked = [*QUESTION, as_sent_back(first.choices[0].message), result(call, "open")]
        await complete(client, asked, tools=[function()], **in_chat)
        ended = await stored(service)
        kept = (await service.client.get("/v1/chats/c/messages")).json()["messages"]
    assert waiting == [("look_up", "complete", "apple is a fruit"), ("open_door", "running", None)]
    assert ended == [("look_up", "complete", "apple is a fruit"), ("open_door", "complete", "open")]
    assert [one["role"] for one in kept] == ["user", "assistant", "tool", "tool", "assistant"]


async def stored(service: Any) -> list[tuple[str, str, str | None]]:
    calls = (await service.client.get("/v1/chats/c/timeline")).json()["tool_calls"]
    return [(call["tool_name"], call["status"], call["result"]) for call in calls]


async def test_a_call_that_was_never_handed_over_is_closed_with_its_run(tmp_path: Path) -> None:
    begun = asyncio.Event()

    @tool
    async def wait() -> None:
        """Waits."""
        begun.set()
        await asyncio.Event().wait()

    answer: list[ModelDelta] = [wants("wait"), wants("open_door", {"room": "attic"}, index=1)]
    agent = Agent("house", skills=(Skill("s", "S.", tools=(wait,)),), model=ScriptedModel(lambda _: answer))
    in_chat: Any = {"extra_body": {"callboard": {"chat_id": "c"}}}
    async with asking(tmp_path, agent) as (service, client):
        asked = asyncio.ensure_future(complete(client, tools=[function()], **in_chat))
        await begun.wait()
        await service.state.runs.close()
        with pytest.raises(openai.BadRequestError, match="shutting down"):
            await asked
        calls = await stored(service)
    closed = "Error: The server was shut down before this call ended."
    assert calls == [("wait", "error", closed), ("open_door", "error", closed)]


async def test_who_has_used_up_the_servers_tools_may_still_hand_over(tmp_path: Path) -> None:
    looks = [[wants("look_up", {"word": word})] for word in ("apple", "pear")]
    house = House(*looks, [wants("open_door", {"room": "attic"}), wants("look_up", {"word": "fig"}, index=1)])
    async with asking(tmp_path, house.agent, max_tool_calls_per_turn=1) as (_, client):
        answer = await complete(client, tools=[function()])
    assert [call.function.name for call in answer.choices[0].message.tool_calls] == ["open_door"]
    assert [one["function"]["name"] for one in house.asked[-1].tools] == ["open_door"]


async def test_arguments_that_do_not_fit_are_told_to_the_model_and_not_to_the_client(tmp_path: Path) -> None:
    house = House([wants("open_door", {"room": ["attic"]})], [wants("open_door", {"room": "attic"})])
    async with asking(tmp_path, house.agent) as (_, client):
        answer = await complete(client, tools=[function()])
    [call] = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"room": "attic"}
    assert "argument 'room'" in house.told()[-1][1]


@pytest.mark.parametrize(
    "room",
    [{"type": "string", "pattern": "^(a+)+$"}, {"$ref": "#/properties/room"}, {"$ref": "http://127.0.0.1:9/x"}, 7],
    ids=["pattern", "loop", "address", "nonsense"],
)
async def test_a_schema_that_is_a_trap_is_the_clients_own(tmp_path: Path, room: Any) -> None:
    arguments = {"room": "a" * 60 + "!"}
    house = House([wants("open_door", arguments)])
    async with asking(tmp_path, house.agent) as (_, client):
        answer = await complete(client, tools=[function(room=room)])
    [call] = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == arguments


@pytest.mark.parametrize(
    ("tool_format", "written"),
    [
        ("react", 'Action: open_door\nAction Input: {"room": "attic"}'),
        ("xml", '<tool_call>\n{"name": "open_door", "arguments": {"room": "attic"}}\n</tool_call>'),
    ],
)
async def test_models_that_call_in_their_text_call_offered_functions_too(
    tmp_path: Path, tool_format: ToolFormat, written: str
) -> None:
    house = House([TextDelta(written)], [TextDelta("It is open.")], tool_format=tool_format)
    async with asking(tmp_path, house.agent) as (_, client):
        first = await complete(client, tools=[function(), function("ring")], tool_choice="required")
        [call] = first.choices[0].message.tool_calls
        asked = [*QUESTION, as_sent_back(first.choices[0].message), result(call, "open sesame")]
        second = await complete(client, asked, tools=[function()])
    assert (call.function.name, json.loads(call.function.arguments)) == ("open_door", {"room": "attic"})
    assert "your answer must be a call" in house.asked[0].messages[0]["content"]
    assert "open sesame" in house.asked[-1].messages[-1]["content"]
    assert second.choices[0].message.content == "It is open."


async def test_the_servers_own_tool_runs_where_a_function_has_its_name_and_the_header_says_so(tmp_path: Path) -> None:
    house = House([wants("look_up", {"word": "apple"})], [TextDelta("A fruit.")])
    offered: Any = [function("look_up", word={"type": "string"}), function(), {"type": "web_search"}]
    async with asking(tmp_path, house.agent) as (_, client):
        answer = await client.chat.completions.with_raw_response.create(model="house", messages=QUESTION, tools=offered)
    assert answer.headers[IGNORED] == "look_up, web_search"
    assert answer.parse().choices[0].message.content == "A fruit."
    assert [one["function"]["name"] for one in house.asked[0].tools] == ["look_up", "open_door"]


async def test_an_agent_that_takes_no_functions_says_so_in_the_header_streamed_too(tmp_path: Path) -> None:
    async with asking(tmp_path, EVERYTHING, House().agent) as (service, _):
        for route, said in (("chat/completions", {"messages": QUESTION}), ("responses", {"input": "hi"})):
            for stream in (False, True):
                body = {"model": "scripted", "tools": [function(), function("ring")], "stream": stream, **said}
                answer = await service.client.post(f"/v1/{route}", json=body)
                assert (answer.status_code, answer.headers[IGNORED]) == (200, "open_door, ring")
        older = {"model": "scripted", "functions": [function()["function"]], "messages": QUESTION}
        answer = await service.client.post("/v1/chat/completions", json=older)
        assert answer.headers[IGNORED] == "functions"
        one_call = {"model": "scripted", "parallel_tool_calls": False, "messages": QUESTION}
        answer = await service.client.post("/v1/chat/completions", json=one_call)
        assert answer.headers[IGNORED] == "parallel_tool_calls"
        plain = await service.client.post("/v1/responses", json={"model": "scripted", "input": "hi"})
    assert IGNORED not in plain.headers


async def test_functions_that_may_not_be_called_are_not_offered(tmp_path: Path) -> None:
    house = House([TextDelta("No.")], [TextDelta("No.")])
    allowed: Any = {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "ring"}}]},
    }
    async with asking(tmp_path, house.agent) as (_, client):
        await complete(client, tools=[function()], tool_choice="none")
        await complete(client, tools=[function(), function("ring")], tool_choice=allowed)
    names = [[one["function"]["name"] for one in request.tools] for request in house.asked]
    assert names == [["look_up"], ["look_up", "ring"]]


async def test_where_one_of_several_functions_must_be_called_the_model_is_held_to_it(tmp_path: Path) -> None:
    house = House([wants("ring", {})])
    ring = function("ring")
    ring["function"]["strict"] = True
    async with asking(tmp_path, house.agent) as (_, client):
        answer = await complete(client, tools=[function(), ring], tool_choice="required")
    assert house.asked[0].tools[-1] == ring
    assert house.asked[0].must_call
    assert [call.function.name for call in answer.choices[0].message.tool_calls] == ["ring"]


FORCED: Any = {"type": "function", "function": {"name": "weather"}}
WEATHER = function("weather", degrees={"type": "number"})


@pytest.mark.parametrize(
    ("tool_choice", "stream"), [(FORCED, False), ("required", True)], ids=["forced, whole", "required, streamed"]
)
async def test_the_one_function_that_must_be_called_is_the_form_of_the_answer(
    tmp_path: Path, tool_choice: Any, stream: bool
) -> None:
    house = House(
        [TextDelta("I look."), wants("look_up", {"word": "apple"})], [TextDelta('{"deg'), TextDelta('rees": 7}')]
    )
    async with asking(tmp_path, house.agent) as (_, client):
        answer = await complete(client, tools=[WEATHER], tool_choice=tool_choice, stream=stream)
        parts = [part async for part in answer] if stream else [answer]
    said = [part.choices[0].delta if stream else part.choices[0].message for part in parts]
    [call] = [call for one in said for call in one.tool_calls or ()]
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"degrees": 7})
    # Agno replaces all other ids.
    assert call.id.startswith("call_")
    assert len(call.id) <= 40
    assert "".join(one.content or "" for one in said) == "I look."
    assert parts[-1].choices[0].finish_reason == "tool_calls"
    asked = house.asked[0]
    assert asked.options["response_format"]["json_schema"]["schema"] == WEATHER["function"]["parameters"]
    assert '"degrees"' in asked.messages[0]["content"]
    # The agent's own tools are still there to find the answer with.
    assert [one["function"]["name"] for one in asked.tools] == ["look_up"]


async def test_an_answer_that_is_not_of_the_form_is_told_as_it_is(tmp_path: Path) -> None:
    house = House([TextDelta("I cannot know.")], [TextDelta("```json\n{'degrees': 7}\n```")])
    async with asking(tmp_path, house.agent) as (_, client):
        refused = await complete(client, tools=[WEATHER], tool_choice=FORCED)
        fenced = await complete(client, tools=[WEATHER], tool_choice=FORCED)
    assert (refused.choices[0].message.content, refused.choices[0].message.tool_calls) == ("I cannot know.", None)
    assert refused.choices[0].finish_reason == "stop"
    [call] = fenced.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"degrees": 7}


async def test_a_model_that_is_asked_in_words_is_not_held_to_the_form_while_it_may_call(tmp_path: Path) -> None:
    house = House(
        [TextDelta('Action: look_up\nAction Input: {"word": "apple"}')],
        [TextDelta('Thought: I know.\nFinal Answer: {"degrees": 7}')],
        tool_format="react",
    )
    async with asking(tmp_path, house.agent) as (_, client):
        answer = await complete(client, tools=[WEATHER], tool_choice=FORCED)
    [call] = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"degrees": 7}
    assert "response_format" not in house.asked[0].options


UNKNOWN = {"id": "call_x_1", "type": "function", "function": {"name": "open_door", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "call_x_1"}


async def test_results_that_belong_to_no_waiting_call_are_refused_in_words(tmp_path: Path) -> None:
    house = House(BOTH)
    user: Any = QUESTION[0]
    elsewhere: Any = {"extra_body": {"callboard": {"chat_id": "another"}}}
    async with asking(tmp_path, house.agent) as (_, client):
        message = (await complete(client, tools=[function()], user="ann")).choices[0].message
        [call] = message.tool_calls
        said, answer = as_sent_back(message), result(call, "open")
        unknown = [user, {**said, "tool_calls": [UNKNOWN]}, {**RESULT, "content": "x"}]
        output: Any = {"type": "function_call_output", "call_id": call.id, "output": "open"}
        outputs: list[Any] = [[user, output], [output, user], [output]]
        no_call = f"{call.id}: the message before .* holds no such call"
        for words, asked in [
            ("the result is missing", complete(client, [user, said], user="ann")),
            ("no such call waits", complete(client, unknown, user="ann")),
            ("no such call waits", complete(client, [user, said, answer], user="eve")),
            ("no such call waits", complete(client, [user, said, answer], user="ann", **elsewhere)),
            (no_call, complete(client, [user, answer, user])),
            *((no_call, respond(client, input=items, user="ann")) for items in outputs),
        ]:
            with pytest.raises(openai.BadRequestError, match=words):
                await asked
    assert len(house.asked) == 1


async def test_a_client_that_was_interrupted_goes_on_and_the_model_reads_that_no_result_arrived(tmp_path: Path) -> None:
    house = House(BOTH, [TextDelta("Yes.")], BOTH, [TextDelta("Yes.")])
    now: Any = {"role": "user", "content": "Stop. What is it?"}
    async with asking(tmp_path, house.agent) as (_, client):
        said = (await complete(client, tools=[function()])).choices[0].message
        await complete(client, [*QUESTION, as_sent_back(said), now], tools=[function()])
        completed = house.told()
        before = await respond(client)
        await respond(client, input=[now], previous_response_id=before.id)
    # A completion without a chat id does not find the call of the server, of which its client knows nothing.
    assert completed[1] == ("assistant", ["open_door"])
    assert house.told()[1:3] == [("assistant", ["look_up", "open_door"]), ("tool", "apple is a fruit")]
    for told in (completed, house.told()):
        assert told[-3] == ("tool", NO_RESULT)
        assert told[-1] == ("user", now["content"])


async def test_a_response_ends_with_the_clients_call_and_goes_on_with_its_output(tmp_path: Path) -> None:
    house = House(BOTH, [TextDelta("It is open.")], BOTH, [TextDelta("It is open.")])
    tools: Any = [as_response_tool(function())]
    async with asking(tmp_path, house.agent) as (_, client):
        for refers in (False, True):
            extra: Any = {"tool_activity": "none"}
            first = await client.responses.create(
                model="house", input="Open it.", tools=tools, extra_body={"callboard": extra}
            )
            call: Any = first.output[-1]
            output = {"type": "function_call_output", "call_id": call.call_id, "output": "open"}
            brought: Any = {"previous_response_id": first.id, "input": [output]}
            if not refers:
                said = [item.model_dump(exclude_none=True) for item in first.output]
                brought = {"input": [{"role": "user", "content": "Open it."}, *said, output]}
            second = await client.responses.create(model="house", tools=tools, **brought)
            assert [item.type for item in first.output] == ["message", "function_call"]
            assert (call.name, call.arguments, first.status) == ("open_door", '{ "room":"attic" }', "completed")
            assert second.output_text == "It is open."
            assert house.told() == [
                ("user", "Open it."),
                ("assistant", ["look_up", "open_door"]),
                ("tool", "apple is a fruit"),
                ("tool", "open"),
            ]


TWO_AT_ONCE: list[ModelDelta] = [
    wants("look_up", {"word": "apple"}),
    wants("look_up", {"word": "pear"}, index=1),
    wants("open_door", {"room": "attic"}, index=2),
]
DOORS: list[ModelDelta] = [
    wants("open_door", {"room": "attic"}),
    wants("open_door", {"room": "hall"}, index=1),
    wants("look_up", {"word": "pear"}, index=2),
]


async def respond(client: AsyncOpenAI, **fields: Any) -> Any:
    offered: Any = [as_response_tool(function())]
    return await client.responses.create(**{"model": "house", "input": "hi", "tools": offered, **fields})


async def ask(client: AsyncOpenAI, **fields: Any) -> Any:
    return await complete(client, tools=[function()], **fields)


def functions_called(answer: Any) -> list[str]:
    """The arguments of the client's functions in an answer of either route."""
    if answer.object == "response":
        return [item.arguments for item in answer.output if item.type == "function_call"]
    return [call.function.arguments for call in answer.choices[0].message.tool_calls]


@pytest.mark.parametrize("asked", [ask, respond], ids=["completions", "responses"])
async def test_a_client_that_wants_no_parallel_calls_gets_one_call_of_each_of_the_models_answers(
    tmp_path: Path, asked: Any
) -> None:
    house = House(TWO_AT_ONCE, DOORS)
    async with asking(tmp_path, house.agent) as (_, client):
        answer = await asked(client, parallel_tool_calls=False)
    assert [json.loads(arguments) for arguments in functions_called(answer)] == [{"room": "attic"}]
    assert [request.one_call for request in house.asked] == [True, True]
    # Of its first answer the model is told the call that was made, as if it had asked for no other.
    assert house.told()[-2:] == [("assistant", ["look_up"]), ("tool", "apple is a fruit")]
    if answer.object == "response":
        assert answer.parallel_tool_calls is False


@pytest.mark.parametrize("asked", [ask, respond], ids=["completions", "responses"])
async def test_a_stream_without_parallel_calls_announces_the_one_that_is_made(tmp_path: Path, asked: Any) -> None:
    house = House(DOORS)
    async with asking(tmp_path, house.agent) as (_, client):
        chunks = "".join(
            [chunk.model_dump_json() async for chunk in await asked(client, stream=True, parallel_tool_calls=False)]
        )
    assert "attic" in chunks
    assert "hall" not in chunks
