"""Names, arguments, results and questions that are made to break a page: each stands there as the text that it is."""

import asyncio
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from callboard import Agent, Skill
from callboard.agents import RunContext
from callboard.calls import Tool
from callboard.testing import FakeModel
from callboard_protocol import (
    Done,
    Event,
    InputRequest,
    Message,
    Status,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)
from tests.inspect.looking import Looking, in_a_browser
from tests.serving import ScriptedAgent, Service, request, serving

RUN = "document.title='pwned';window.pwned=1"
MARKUP = (
    f'"\'><script>{RUN}</script><img src=x onerror="{RUN}"><svg onload="{RUN}"></svg></pre></textarea></title>'
    f'</script><style>*{{display:none}}</style><iframe srcdoc="<script>parent.{RUN}</script>"></iframe>'
    f'<form action="https://evil.example"><meta http-equiv="refresh" content="0;url=https://evil.example">'
)
HTMX = (
    '<div data-hx-get="/inspect/stop" data-hx-trigger="load" hx-get="/v1/models" hx-trigger="load" '
    f'hx-on:load="{RUN}" data-hx-on::load="{RUN}">x</div>'
)
TEMPLATE = "{{7*7}}{% for x in ().__class__.__base__.__subclasses__() %}{{x}}{% endfor %}${7*7}#{7*7}"
UNSEEN = "invoice\u202efdp.exe\u2066\u200b\u0000\u001b[31m\u009b\u2028"
DEEP = f"{'[' * 900}{'0,' * 20_000}0{']' * 900}"
"""JSON that has a thousand times the characters once each of its parts stands in an indented line."""
LINK = "javascript:document.title='pwned'//"
HUGE = "<b>" + "x" * 300_000
EVERYTHING = f"{MARKUP}{HTMX}{TEMPLATE}{UNSEEN}{LINK}"
ADDRESSES = (
    LINK,
    "data:text/html,<script>window.pwned=1</script>",
    '//evil.example" onclick="window.pwned=1',
    'https://good.example/a"b',
)


class Hostile:
    """An agent whose every word is one, whose run waits for the test in the middle."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.is_waiting = asyncio.Event()

    async def run(self, _: RunContext) -> AsyncIterator[Event]:
        yield Status(content=EVERYTHING)
        yield Message(content=EVERYTHING)
        yield ToolCallStart(tool_call_id=f"ask{MARKUP}", tool_name=MARKUP, tool_args={MARKUP: EVERYTHING})
        step = ToolStatusData(status="repaired", message=EVERYTHING, progress=50)
        yield ToolStatus(tool_call_id=f"ask{MARKUP}", data=step)
        question = InputRequest(request_id=MARKUP, kind="confirmation", title=EVERYTHING, message=EVERYTHING)
        yield question
        yield InputRequest(request_id="2", kind="input", title="x", message="y", placeholder=EVERYTHING)
        self.is_waiting.set()
        await self.may_end.wait()
        yield ToolCallError(tool_call_id=f"ask{MARKUP}", error=EVERYTHING, code=MARKUP[:60])
        files = {"type": "image", "url": LINK, "name": MARKUP}, *({"type": MARKUP, "url": url} for url in ADDRESSES)
        yield ToolCallStart(tool_call_id="files", tool_name=TEMPLATE, tool_args=EVERYTHING)
        yield ToolCallComplete(tool_call_id="files", result=EVERYTHING, files=files)
        yield ToolCallStart(tool_call_id="huge", tool_name="huge", tool_args=HUGE)
        yield ToolCallComplete(tool_call_id="huge", result=HUGE)
        yield ToolCallStart(tool_call_id="svg", tool_name="svg")
        yield ToolCallComplete(tool_call_id="svg", result="data:image/svg+xml;base64,PHN2Zz4=")
        yield Message(content=EVERYTHING)
        yield Done()


IDS: dict[str, Any] = {"run_id": "r", "chat_id": f"c{MARKUP}"[:200], "user": {"id": f"u{MARKUP}"[:200]}}


def place(step: str, **query: object) -> str:
    return f"/inspect/{step}?{urlencode(query)}"


OURS = ("inspect.css", "htmx.min.js")
STRANGE = ("script", "style", "iframe", "meta", "base", "object", "embed", "template")


class Parsed(HTMLParser):
    """The words of a page, its links, and the elements and attributes that none of our pages has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.strange: list[str] = []
        self.links: list[str] = []
        self.words = ""
        self._is_content = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_content = self._is_content or tag == "main"
        self.strange += [tag] if self._is_content and tag in STRANGE else []
        self.strange += [name for name, _ in attrs if name.startswith(("on", "hx-", "data-hx-on")) or "<" in name]
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action", "data-hx-get")]

    def handle_data(self, data: str) -> None:
        self.words += data


def check_page(page: str) -> Parsed:
    """Hold that nothing that a page shows is a part of the page."""
    parsed = Parsed(page)
    assert parsed.strange == []
    inner = ("/inspect/", "data:,", "data:image/png;", "#", "https://good.example/")
    assert [link for link in parsed.links if link and not link.startswith(inner)] == []
    return parsed


async def test_every_page_shows_text_of_users_models_and_tools_as_text(tmp_path: Path) -> None:
    hostile = Hostile()
    schema = {"type": "object", "properties": {MARKUP: {"type": "string", "description": EVERYTHING}}}
    strange = Tool("strange", EVERYTHING, schema, lambda **_: None)
    skill = Skill(
        MARKUP, EVERYTHING, EVERYTHING, tools=(strange,), missing=EVERYTHING, conditions=lambda: (EVERYTHING,)
    )
    clerk = Agent("clerk", EVERYTHING, (skill,), name=MARKUP, model=FakeModel("Done."))
    agents = ScriptedAgent(hostile.run, name=MARKUP, description=EVERYTHING), clerk
    async with serving(tmp_path, *agents) as service:
        service.state.registry.unavailable[MARKUP] = EVERYTHING
        await service.events(request(agent="clerk", chat_id="c", run_id="s"))
        say = [{"role": "user", "content": EVERYTHING}]
        running = asyncio.create_task(service.events(request(message_id=MARKUP[:200], messages=say, **IDS)))
        await asyncio.wait({running, asyncio.create_task(hostile.is_waiting.wait())}, return_when="FIRST_COMPLETED")
        assert not running.done(), running.result()
        run = IDS["run_id"]
        chat = IDS["chat_id"]
        told = [place(""), place("run", id=run, chat=chat), place("chat", id=chat), place("chats"), place("calls")]

        async def open_page(path: str) -> Parsed:
            return check_page((await service.client.get(path)).text)

        for path in told:
            assert "<script>" in (await open_page(path)).words
        hostile.may_end.set()
        await running
        calls = (await service.client.get(f"/v1/tool-calls?{urlencode({'user_id': IDS['user']['id']})}")).json()
        ids = [call["tool_call_id"] for call in calls["tool_calls"]]
        assert len(ids) == 4
        told += [place("agents"), place("agent", id="clerk"), place("sent", run="s", chat="c")]
        for path in told:
            assert "<script>" in (await open_page(path)).words
        pages = [place("call", id=one, run=run, chat=chat) for one in ids]
        pages += [place("agent", id="scripted")]
        pages += [place("chats", text=MARKUP), place("calls", text=MARKUP, tool=MARKUP, agent=MARKUP)]
        pages += [place("", user=IDS["user"]["id"])]
        for path in pages:
            await open_page(path)
        # What cannot be seen is there as what it is, and a template's syntax as it was written.
        words = (await open_page(place("run", id=run, chat=chat))).words
        assert "U+202E" in words
        assert "U+2066" in words
        assert "{{7*7}}" in words
        assert "\u202e" not in words
        # Only addresses of the web are links, and a picture that may hold scripts is none.
        files = (await service.client.get(place("call", id="files", run=run, chat=chat))).text
        [good] = [link for link in Parsed(files).links if link.startswith("https:")]
        assert good == 'https://good.example/a"b'
        assert 'rel="noreferrer noopener nofollow"' in files
        assert "<img" not in (await service.client.get(place("call", id="svg", run=run, chat=chat))).text


async def look_at(looking: Looking, service: Service, path: str) -> None:
    """Open a page and hold that nothing of what it shows has run."""
    page = looking.page
    await page.goto(f"{service.client.base_url}{path}")
    # Whatever would run by itself has run by then.
    await page.wait_for_function("window.htmx && document.readyState === 'complete'")
    assert await page.evaluate("window.pwned") is None
    assert await page.title() != "pwned"
    assert page.url == f"{service.client.base_url}{path}"
    loaded = await page.evaluate("performance.getEntriesByType('resource').map(one => new URL(one.name).pathname)")
    assert {path.rsplit("/", 1)[1] for path in loaded if "/assets/" in path} <= {*OURS}
    assert all(path.startswith("/inspect") for path in loaded), loaded
    assert "<script>" in await page.inner_text("body")
    assert looking.complaints == [], looking.complaints


@in_a_browser
async def test_no_page_executes_text_of_users_models_and_tools(looking: Looking, tmp_path: Path) -> None:
    hostile = Hostile()
    agent = ScriptedAgent(hostile.run, name=MARKUP, description=EVERYTHING)
    async with serving(tmp_path, agent) as service:
        say = [{"role": "user", "content": EVERYTHING}]
        running = asyncio.create_task(service.events(request(messages=say, **IDS)))
        await hostile.is_waiting.wait()
        ids = {"run": IDS["run_id"], "chat": IDS["chat_id"]}
        await look_at(looking, service, place("run", id=ids["run"], chat=ids["chat"]))
        await looking.picture("hostile-run")
        hostile.may_end.set()
        await running
        await look_at(looking, service, place("call", id="files", **ids))


async def test_text_that_is_huge_or_expands_is_cut_on_pages_and_available_whole(tmp_path: Path) -> None:
    async def grow(_: RunContext) -> AsyncIterator[Event]:
        yield Message(content="a\u200b" * 50_000)
        yield ToolCallStart(tool_call_id="deep", tool_name="deep", tool_args=DEEP)
        yield ToolCallComplete(tool_call_id="deep", result=DEEP)
        yield ToolCallStart(tool_call_id="huge", tool_name="huge", tool_args=HUGE)
        yield ToolCallComplete(tool_call_id="huge", result=HUGE)
        yield ToolCallStart(tool_call_id="steps", tool_name="step")
        mended = ToolStatusData(status="repaired", message="m" * 1_000_000)
        yield ToolStatus(tool_call_id="steps", data=mended)
        yield ToolCallComplete(tool_call_id="steps", result="x")
        for number in range(300):
            yield ToolCallStart(tool_call_id=f"{number}", tool_name="many", tool_args={"x": "y" * 20_000})
            yield ToolCallComplete(tool_call_id=f"{number}", result="x")

    described = {"type": "object", "properties": {"x": {"type": "string", "description": "d" * 1_000_000}}}
    strange = Tool("strange", "d" * 1_000_000, described, lambda **_: None)
    clerk = Agent("clerk", skills=(Skill("s", "s", tools=(strange,)),), model=FakeModel("Done."))
    async with serving(tmp_path, ScriptedAgent(grow), clerk) as service:
        await service.events(request(chat_id="c1", run_id="r"))
        await service.events(request(agent="clerk", chat_id="c", run_id="s"))
        pages = [place("run", id="r", chat="c1")]
        pages += [place("call", id=one, run="r", chat="c1") for one in ("deep", "huge", "steps")]
        for path in (*pages, place("calls"), place("agent", id="clerk"), place("sent", run="s", chat="c")):
            page = await service.client.get(path)
            assert page.status_code == 200
            assert len(page.content) < 1_000_000, path
        whole = await service.client.get(place("result", id="huge", run="r", chat="c1"))
        assert whole.text == HUGE
        assert whole.headers["content-type"] == "text/plain; charset=utf-8"
        assert whole.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in whole.headers["content-security-policy"]


async def test_secrets_are_removed_from_shown_requests(tmp_path: Path) -> None:
    secret = "sk-abcdefghijklmnop0123456789"
    schema = {"type": "object", "properties": {"key": {"type": "string", "default": secret}}}
    skill = Skill(
        "s",
        f"Has {secret}.",
        f"The key is {secret}.",
        tools=(Tool("look", f"Looks with {secret}.", schema, lambda **_: None),),
        missing=f"no {secret}",
        conditions=lambda: (f"{secret}: ready",),
        secrets=(secret,),
    )
    clerk = Agent("clerk", skills=(skill,), model=FakeModel("Ok."))
    async with serving(tmp_path, clerk) as service:
        service.state.registry.unavailable["home"] = f"{secret} is wrong"
        await service.events(request(agent="clerk", chat_id="c", run_id="r"))
        assert secret not in (await service.client.get(place("agents"))).text
        for path in (place("sent", run="r", chat="c"), place("agent", id="clerk")):
            page = (await service.client.get(path)).text
            assert secret not in page
            assert "The key is [secret]." in page
