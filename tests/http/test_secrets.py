"""Secrets of settings and of tools are in no event, no row, no line of log and no request to a model."""

import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, SecretStr

from callboard.agents import Agent, RunContext
from callboard.calls import Tool, ToolContext, ToolResult, tool
from callboard.errors import ToolError
from callboard.skills import Brave, Searxng, Seerr, Skill, WebSearch
from callboard_protocol import (
    Error,
    Event,
    InputRequest,
    Message,
    Plan,
    PlanStep,
    Reasoning,
    Source,
    Status,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)
from tests.fakes.openai_server import Answer, Body, OpenAIServer, call, chunks, finish, text
from tests.serving import ScriptedAgent, Service, request, serving

SETTINGS = {
    "model_api_key": "sk-model-1f0c22",
}
SKILLS = (
    WebSearch([Brave("BSA-brave/77+ü"), Searxng("http://looker:sea4ch-pw@127.0.0.1:9/?token=q-t0k3n-x")]),
    Seerr("http://127.0.0.1:9/", 'MTY5"seerr=='),
)
SECRETS = ("sk-model-1f0c22", "BSA-brave/77+ü", 'MTY5"seerr==', "sea4ch-pw", "q-t0k3n-x")


def dresses(secret: str) -> Iterator[str]:
    yield secret
    yield json.dumps(secret)[1:-1]
    yield quote(secret, safe="")
    yield from (base64.b64encode(b"x" * n + secret.encode()).decode() for n in range(3))


def check_without(texts: str, *secrets: str) -> None:
    # The ends of base64 depend on what is around.
    traces = [form[4:-4] if form.isalnum() else form for secret in secrets for form in dresses(secret)]
    found = [trace for trace in traces if trace in texts]
    assert found == []


def everything_kept(folder: Path) -> str:
    """The bytes of the database, with what is not yet written into its file."""
    return "".join(path.read_bytes().decode("utf-8", "replace") for path in folder.glob("callboard.db*"))


def everything_told(events: list[Event]) -> str:
    return "\n".join(event.model_dump_json() for event in events) + "".join(
        event.content for event in events if isinstance(event, Message)
    )


@asynccontextmanager
async def conversation(
    folder: Path, answers: list[Answer], *tools: Tool, **settings: Any
) -> AsyncIterator[tuple[Service, list[Body]]]:
    """A server with an agent that has these tools, and what its model was sent."""
    agent = Agent("scripted", "For tests.", (Skill("tools", "Tools.", tools=tools), *SKILLS))
    async with (
        OpenAIServer(answers) as endpoint,
        serving(folder, agent, model_base_url=endpoint.base_url, model="m", **settings) as service,
    ):
        yield service, endpoint.requests


def asking(name: str, arguments: Any, *, in_pieces: bool = False) -> Answer:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    if not in_pieces:
        return chunks(call(name, written, call_id="c1"), finish("tool_calls"))
    return chunks(call(name, "", call_id="c1"), *(call(None, piece) for piece in written), finish("tool_calls"))


async def test_no_secret_of_the_settings_leaves_the_server_whatever_a_tool_or_the_model_says(tmp_path: Path) -> None:
    leak = " ".join(form for secret in SECRETS for form in dresses(secret))

    @tool
    async def environment(context: ToolContext) -> ToolResult:
        """Tells all it knows."""
        await context.status("processing", leak)
        data = base64.b64encode(leak.encode()).decode()
        file = {"type": "file", "name": leak, "url": f"data:text/plain;base64,{data}"}
        source = Source(source={"name": leak}, document=(leak,), metadata=({"source": leak},))
        return ToolResult(leak, files=(file,), embeds=(f"<p>{leak}</p>",), sources=(source,))

    @tool
    def fails() -> str:
        """Raises with all it knows."""
        raise ValueError(leak)

    answers = [
        asking("environment", {}),
        asking("fails", {}),
        chunks(text(None, reasoning_content=leak), *(text(letter) for letter in leak), finish("stop")),
        chunks(text("again"), finish("stop")),
    ]
    async with conversation(tmp_path, answers, environment, fails, **SETTINGS) as (service, sent):
        body = request(chat_id="c", messages=[{"role": "user", "content": f"is {leak} yours?"}])
        events = await service.events(body)
        await service.events(body)
        stored = await service.client.get("/v1/chats/c/messages")
    assert [event.type for event in events].count("tool_call_error") == 1
    assert "[secret]" in everything_told(events)
    check_without(everything_told(events), *SECRETS)
    check_without(stored.text, *SECRETS)
    check_without(everything_kept(tmp_path), *SECRETS)
    assert len(sent) == 4
    assert "[secret]" in json.dumps(sent[1]["messages"])
    check_without(json.dumps(sent) + json.dumps(sent, ensure_ascii=False), *SECRETS)


async def test_an_agent_of_ones_own_is_held_to_it_in_every_event(tmp_path: Path) -> None:
    [key] = ["sk-model-1f0c22"]

    async def script(_: RunContext) -> AsyncIterator[Event]:
        yield Status(content=key)
        yield Reasoning(content=key[:5])
        yield Reasoning(content=key[5:])
        yield ToolCallArgsDelta(tool_call_id="a", tool_name="t", delta=f'{{"k": "{key[:9]}')
        yield ToolCallArgsDelta(tool_call_id="b", tool_name="t", delta="{")
        yield ToolCallArgsDelta(tool_call_id="a", delta=f'{key[9:]}"}}')
        yield ToolCallStart(tool_call_id="a", tool_name="t", tool_args={"k": [key], key: 1})
        yield ToolStatus(tool_call_id="a", data=ToolStatusData(status="s", message=key))
        yield ToolCallComplete(tool_call_id="a", result=f'{{"k": "{key}"}}')
        yield ToolCallStart(tool_call_id="b", tool_name="t", tool_args=f'{{"k": "{key}", "k": 1}}')
        yield ToolCallError(tool_call_id="b", error=key)
        yield Source(source={"url": f"https://x.example/?k={key}"})
        yield Plan(steps=(PlanStep(id="1", content=key, state="completed"),))
        yield Message(content=key[:4])
        yield Reasoning(content="hm")
        yield Message(content=key[4:])
        yield Error(message=f"no such key {key} in /usr/share/callboard/keys.txt")

    async with serving(tmp_path, ScriptedAgent(script), model_api_key=key) as service:
        events = await service.events(request(chat_id="c"))
    check_without("\n".join(event.model_dump_json() for event in events), key)
    check_without(everything_kept(tmp_path), key)
    assert events[-1] == Error(message="no such key [secret] in …/keys.txt", code="internal_error")


async def test_a_tool_names_arguments_and_values_that_are_secret(tmp_path: Path) -> None:
    given: list[str] = []

    @tool(secrets=("pin", "house-key-778"), requires_confirmation=True)
    def unlock(door: str, pin: str) -> str:
        """Opens a door."""
        given.append(pin)
        raise ToolError(f"{door}: {pin} with house-key-778 is wrong")

    answers = [
        asking("unlock", {"door": "front", "pin": "47-x-11-y"}, in_pieces=True),
        asking("unlock", {"door": "front", "pin": "471"}),
        asking("unlock", '{"door": "front", "pin": "47-x-11-z'),
        asking("unlock", '{"door": "front", "pin": 47-x-11-v}'),
        asking("unlock", {"door": "front", "pin": ["47-x-11-w"]}),
        asking("unlock", {"door": "47-x-11-u", "pin": "47-x-11-u"}, in_pieces=True),
        asking("unlock", {"door": "front", "pin": "471", "code": "47-x-11-t"}),
        asking("unlok", {"door": "47-x-11-s", "pin": "47-x-11-r"}, in_pieces=True),
        chunks(text("47-x-11-y and 47-x-11-r did not open it"), finish("stop")),
    ]
    async with conversation(tmp_path, answers, unlock) as (service, sent):
        events = await service.events_with_answer(request(chat_id="c", run_id="r"), True)
        page = (await service.client.get(f"/inspect/sent?run=r&chat=c&request={len(sent) - 1}")).text
    assert given == ["47-x-11-y", "471", "47-x-11-u"]
    starts = [event.tool_args for event in events if isinstance(event, ToolCallStart)]
    assert starts[:2] == [{"door": "front", "pin": "[secret]"}] * 2
    questions = [event.message for event in events if isinstance(event, InputRequest)]
    assert questions == ["door: front\npin: [secret]"] * 2 + ["door: [secret]\npin: [secret]"]
    errors = [event.error for event in events if isinstance(event, ToolCallError)]
    assert errors[0] == "front: [secret] with [secret] is wrong"
    everything = everything_told(events) + everything_kept(tmp_path) + page
    assert "There is no tool &#39;unlok&#39;" in page
    check_without(everything, *(f"47-x-11-{letter}" for letter in "rstuvwyz"), "house-key-778")
    check_without(json.dumps([body["messages"][-1] for body in sent]), "47-x-11-y", "house-key-778")


class Login(BaseModel):
    user_name: str
    password: SecretStr


async def test_texts_and_keys_inside_a_secret_argument_are_secret_but_no_names_of_fields(tmp_path: Path) -> None:
    @tool(secrets=("headers", "logins"))
    async def fetch(headers: dict[str, str], logins: list[Login]) -> str:
        """Fetches a page."""
        words = [headers["Authorization"], *(login.password.get_secret_value() for login in logins)]
        raise ToolError(f"Authorization: {' '.join(words)} of a user_name is wrong")

    given = {
        "headers": {"Authorization": "t0k3n-of-headers"},
        "logins": [{"user_name": "ann", "password": "pa55word-of-ann"}],
    }
    answers = [asking("fetch", given), chunks(text("no"), finish("stop"))]
    async with conversation(tmp_path, answers, fetch) as (service, _):
        events = await service.events(request(chat_id="c"))
    [error] = [event.error for event in events if isinstance(event, ToolCallError)]
    assert error == "[secret]: [secret] [secret] of a user_name is wrong"


async def test_a_tool_names_what_it_learnt_while_it_ran_and_another_run_is_not_concerned(tmp_path: Path) -> None:
    @tool
    async def log_in(context: ToolContext) -> str:
        """Gets a token."""
        token = context.secret("t0k3n-of-this-session")
        await context.status("processing", f"got {token}")
        return f"logged in with {token}"

    answers = [
        asking("log_in", {}),
        chunks(text("the token is t0k3n-of-"), text("this-session"), finish("stop")),
        chunks(text("t0k3n-of-this-session is a word here"), finish("stop")),
    ]
    async with conversation(tmp_path, answers, log_in) as (service, sent):
        events = await service.events(request(chat_id="c"))
        check_without(everything_told(events) + everything_kept(tmp_path) + json.dumps(sent), "t0k3n-of-this-session")
        assert "the token is [secret]" in everything_told(events)
        assert "t0k3n-of-this-session" in everything_told(await service.events(request(chat_id="d")))


async def test_where_things_lie_on_the_server_stands_in_no_error_that_a_user_reads(tmp_path: Path) -> None:
    lost = tmp_path / "a folder" / "lost.txt"

    @tool
    def reads() -> str:
        """Reads a file that is not there."""
        return lost.read_text()

    answers = [asking("reads", {}), chunks(text("oh"), finish("stop"))]
    async with conversation(tmp_path, answers, reads) as (service, sent):
        events = await service.events(request(chat_id="c"))
    [error] = [event.error for event in events if isinstance(event, ToolCallError)]
    assert error == "FileNotFoundError: [Errno 2] No such file or directory: '…/lost.txt'"
    assert str(tmp_path) not in json.dumps(sent)

    async def script(_: RunContext) -> AsyncIterator[Event]:
        yield Message(content="so far")
        raise OSError(f"cannot read {lost}")

    async with serving(tmp_path / "2", ScriptedAgent(script)) as service:
        events = await service.events(request())
    assert events[-1] == Error(message="The agent failed with OSError: cannot read …/lost.txt", code="agent_error")
