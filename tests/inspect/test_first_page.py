"""The first page and the pages of runs and chats by the words that people know, read over HTTP."""

import html
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callboard._inspect import now_pages
from callboard.agents import RunContext
from callboard_protocol import Error, Event, Message, ToolCallComplete, ToolCallError, ToolCallStart
from examples.demo import demo_agent
from tests.serving import ScriptedAgent, Service, request, serving

ANN = {"id": "4b1f8e9c", "name": "Ann Lee"}
FILES = '<attached_files>\n<file type="file" id="f1" name="a.pdf"/>\n</attached_files>\n\n'
TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1\n    look()\nValueError: dark'


async def read(service: Service, path: str) -> str:
    """The words of a page, as a person reads them: without markup, lines joined."""
    page = (await service.client.get(f"/inspect/{path}")).text
    body = page[page.index('<main id="content"') :]
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", body)).split())


async def read_rows(service: Service, path: str = "") -> list[str]:
    """The rows of the tables of a page, as a person reads them."""
    page = (await service.client.get(f"/inspect/{path}")).text
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    words = [" ".join(html.unescape(re.sub("<[^>]*>", " ", row)).split()) for row in rows]
    return [row for row in words if not row.startswith(("Question", "Task"))]


def ask(question: str, **fields: object) -> dict[str, object]:
    return request(messages=[{"role": "user", "content": question}], user=ANN, **fields)


async def look_and_fail(_: RunContext) -> AsyncIterator[Event]:
    yield Message(content="Let me look. ")
    yield ToolCallStart(tool_call_id="a", tool_name="look", round_index=0)
    yield ToolCallComplete(tool_call_id="a", result="a lamp")
    yield Message(content="And once more. ")
    yield ToolCallStart(tool_call_id="b", tool_name="look", round_index=1)
    yield ToolCallError(tool_call_id="b", error=TRACEBACK, code="tool_failed")
    yield Message(content="It is dark.")


async def break_off(_: RunContext) -> AsyncIterator[Event]:
    yield Message(content="Half an ")
    yield Error(message="no answer in 60 s", code="model_timeout")


async def test_answers_are_listed_by_question_agent_and_user_after_a_restart_too(tmp_path: Path) -> None:
    agents = ScriptedAgent(look_and_fail, "lighthouse", "The Keeper"), ScriptedAgent(break_off, "b", "Bo")
    asked = [
        ask(FILES + "Is it dark?", agent="lighthouse", chat_id="one", run_id="r1"),
        ask("Say something", agent="b", chat_id="two", run_id="r2"),
    ]
    expected = [
        "Say something Bo Ann Lee 0 failed no answer in 60 s (model_timeout) just now",
        "Is it dark? The Keeper Ann Lee 2 done 1 call failed look "
        'Traceback (most recent call last): File "a.py", line 1 look() ValueError: dark just now',
    ]
    async with serving(tmp_path, *agents) as service:
        for body in asked:
            await service.events(body)
        assert await read_rows(service) == expected
    async with serving(tmp_path, *agents) as service:
        assert await read_rows(service) == expected
        first = (await service.client.get("/inspect/")).text
        assert re.search(r'<time datetime="[^"]+" title="\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC">just now</time>', first)
        # The name of a user leads to what is theirs.
        assert 'href="/inspect/?user=4b1f8e9c" title="4b1f8e9c"' in first
        assert await read_rows(service, "?user=somebody-else") == []


async def test_background_tasks_are_folded_and_answers_of_no_chat_are_listed(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(look_and_fail)) as service:
        await service.events(ask("Is it dark?", chat_id="one", run_id="r1"))
        for number, task in enumerate(("title_generation", "tags_generation", "follow_up_generation")):
            await service.events(ask("### Task: a name", chat_id="one", run_id=f"t{number}", task=task))
        await service.events(ask("In passing", run_id="temporary"))
        page = (await service.client.get("/inspect/")).text
        shown, folded = page.split("<details id=", 1)
        assert re.findall(r'<a id="answer-\d+"[^>]*>([^<]*)</a>', shown) == ["In passing", "Is it dark?"]
        assert "3 background tasks of this server" in folded
        names = re.findall(r'<a id="task-\d+"[^>]*>([^<]*)</a>', folded)
        assert names == ["Follow up generation", "Tags generation", "Title generation"]
        assert (await read(service, "run?id=t0&chat=one")).startswith("Title generation State done")


async def test_the_newest_answers_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(now_pages, "ANSWERS_SHOWN", 3)
    async with serving(tmp_path, ScriptedAgent(break_off)) as service:
        for number in range(5):
            await service.events(ask(f"Number {number}.", chat_id=f"c{number % 2}", run_id=f"r{number}"))
        rows = await read_rows(service)
        assert [row.split(".")[0] for row in rows] == ["Number 4", "Number 3", "Number 2"]


async def test_a_run_and_a_chat_are_named_by_their_first_question(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(look_and_fail)) as service:
        await service.events(ask(FILES + "Is it dark?", chat_id="one", run_id="r1"))
        await service.events(ask("And now?", chat_id="one", run_id="r2"))
        assert (await read(service, "run?id=r1&chat=one")).startswith(
            "Is it dark? State done Agent Scripted User Ann Lee"
        )
        assert (
            "<title>Is it dark? · Callboard</title>" in (await service.client.get("/inspect/run?id=r1&chat=one")).text
        )
        chat = await read(service, "chat?id=one")
        assert chat.startswith("Is it dark? Ann Lee · begun just now · chat one And now? just now · Scripted · 2 calls")
        assert "Is it dark? Ann Lee 2 4 2 just now" in await read(service, "chats")
        # All that it said, in its order, as after a restart.
        assert "Let me look. And once more. It is dark." in await read(service, "run?id=r1&chat=one")
        page = (await service.client.get("/inspect/call?id=b&run=r1&chat=one")).text
        assert html.escape(TRACEBACK) in page.replace("&#34;", "&quot;")


async def test_a_call_of_a_sub_agent_links_to_the_call_that_started_it(tmp_path: Path) -> None:
    async def lead(_: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="outer", tool_name="ask")
        yield ToolCallStart(tool_call_id="inner", tool_name="look", parent_call_id="outer")
        yield ToolCallComplete(tool_call_id="inner", result="dark")
        yield ToolCallComplete(tool_call_id="outer", result="It is dark.")

    async with serving(tmp_path, ScriptedAgent(lead)) as service:
        await service.events(ask("Is it dark?", chat_id="one", run_id="r1"))
        pages = [
            (await service.client.get(f"/inspect/call?id={one}&run=r1&chat=one")).text for one in ("inner", "outer")
        ]
        assert ["call?id=outer" in page.partition("Made by")[2] for page in pages] == [True, False]


async def test_form_of_a_list_keeps_its_filters(tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(0)) as service:
        page = (await service.client.get("/inspect/calls?agent=demo&since=2026-01-31&user=4b1f8e9c")).text
        assert '<option value="demo" selected>Demo</option>' in page
        assert 'name="since" value="2026-01-31"' in page
        assert 'name="user" value="4b1f8e9c"' in page
