"""Tools' files that are too large for a frame, files attached by users, and links to full results."""

import base64
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr
from pypdf import PdfWriter

from callboard.agents import RunContext
from callboard.runs import files
from callboard_protocol import Event, Message, ToolCallComplete, ToolCallStart
from tests.serving import ScriptedAgent, Service, request, serving

PICTURE = bytes(range(256)) * 1024
URL = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
SMALL = "data:image/gif;base64,R0lGODlhAQABAAAAACw="
KEY = SecretStr("a-long-secret-key")


async def pictures(context: RunContext) -> AsyncIterator[Event]:
    yield ToolCallStart(tool_call_id="a", tool_name="paint")
    files = (
        {"type": "image", "url": URL, "name": "big.png"},
        {"type": "image", "url": SMALL},
        {"type": "file", "url": "data:text/csv,a%2Cb", "name": "a.csv"},
    )
    yield ToolCallComplete(tool_call_id="a", result="line\n" * 30_000, files=files)


async def completed(service: Service, **fields: object) -> ToolCallComplete:
    events = await service.events(request(run_id="r", **fields))
    return next(event for event in events if isinstance(event, ToolCallComplete))


async def test_large_file_gets_a_url_and_small_file_is_inline(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(pictures)) as service:
        big, small, table = (await completed(service)).files
        assert (big["content_type"], big["name"], small["url"]) == ("image/png", "big.png", SMALL)
        response = await service.client.get(big["url"])
        assert (await service.client.get(table["url"])).content == b"a,b"
        missing = await service.client.get("/v1/runs/r/files/none")
    assert response.content == PICTURE
    assert response.headers["content-type"] == "image/png"
    assert response.headers["content-disposition"] == "attachment"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_file")


async def test_file_beyond_the_limit_is_dropped_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_RUN_CHARS", len(URL))
    async with serving(tmp_path, ScriptedAgent(pictures)) as service:
        big, small, table = (await completed(service)).files
        assert (await service.client.get(big["url"])).content == PICTURE
    assert small["url"] == SMALL
    assert (table["url"], table["dropped"]) == ("", f"over {len(URL)} characters of files in one run")


async def test_results_have_no_links_by_default(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(pictures)) as service:
        assert (await completed(service, chat_id="c")).result_url is None


async def test_a_link_opens_the_whole_result_without_the_key_until_it_expires(tmp_path: Path) -> None:
    values = {"api_key": KEY, "result_link_seconds": 60, "public_url": "https://callboard.example.org/"}
    user = {"id": "u", "name": "Ada"}
    async with serving(tmp_path, ScriptedAgent(pictures), **values) as service:
        service.client.headers["Authorization"] = f"Bearer {KEY.get_secret_value()}"
        link = (await completed(service, chat_id="c", user=user)).result_url
        assert link is not None
        assert link.startswith("https://callboard.example.org/v1/tool-calls/a?")
        del service.client.headers["Authorization"]
        parts = urlsplit(link)
        opened = await service.client.get(f"{parts.path}?{parts.query}")
        assert opened.text == "line\n" * 30_000
        assert opened.headers["content-type"].startswith("text/plain")
        for wrong in ("chat_id=c", f"{parts.query}0", parts.query.replace("expires=", "expires=9")):
            assert (await service.client.get(f"{parts.path}?{wrong}")).status_code == 401
        assert (await service.client.get(f"/v1/tool-calls/b?{parts.query}")).status_code == 401
        assert (await service.client.get(f"/v1/chats/c/messages?{parts.query}")).status_code == 401


async def test_a_link_that_has_expired_opens_nothing(tmp_path: Path) -> None:
    values = {"api_key": KEY, "result_link_seconds": 0.001, "public_url": "http://x"}
    async with serving(tmp_path, ScriptedAgent(pictures), **values) as service:
        service.client.headers["Authorization"] = f"Bearer {KEY.get_secret_value()}"
        link = (await completed(service, chat_id="c")).result_url
        del service.client.headers["Authorization"]
        parts = urlsplit(str(link))
        assert (await service.client.get(f"{parts.path}?{parts.query}")).status_code == 401


async def test_unstored_run_has_no_links(tmp_path: Path) -> None:
    async with serving(
        tmp_path, ScriptedAgent(pictures), api_key=KEY, result_link_seconds=60, public_url="http://x"
    ) as service:
        service.client.headers["Authorization"] = f"Bearer {KEY.get_secret_value()}"
        assert (await completed(service)).result_url is None


def pdf() -> bytes:
    writer = PdfWriter()
    out = BytesIO()
    writer.add_blank_page(72, 72)
    writer.write(out)
    return out.getvalue()


def attached(name: str, data_url: str | None) -> dict[str, object]:
    return {"type": "file", "file": {"filename": name, "file_data": data_url}}


@pytest.mark.parametrize(
    ("part", "read"),
    [
        (attached("a.txt", "data:text/plain;base64,aGVsbG8="), '<file name="a.txt" type="text/plain">\nhello\n</file>'),
        (attached("a.md", "data:text/markdown;charset=utf-8,%23%20hi"), "# hi"),
        (attached("a.json", "data:application/ld+json;base64,e30="), "{}"),
        (attached("a.pdf", f"data:application/pdf;base64,{base64.b64encode(pdf()).decode()}"), 'name="a.pdf"'),
        (attached("bad.pdf", "data:application/pdf;base64,aGVsbG8="), "bad.pdf, which cannot be read"),
        (attached("a.zip", "data:application/zip;base64,UEs="), "a.zip (application/zip, 2 bytes), which is no text"),
        (attached("a.bin", "data:text/plain;base64,AAA"), "a.bin, which cannot be read"),
        (attached("a.doc", None), "a.doc, which cannot be read"),
        (attached("nul.txt", "data:text/plain;base64,AA=="), "\ufffd"),
        (attached("long.txt", f"data:text/plain,{'x' * 200_010}"), "[10 more characters]"),
    ],
)
async def test_an_attached_file_reaches_the_agent_and_the_store_as_text(
    tmp_path: Path, part: dict[str, object], read: str
) -> None:
    seen: list[object] = []
    image = {"type": "image_url", "image_url": {"url": SMALL}}

    async def script(context: RunContext) -> AsyncIterator[Event]:
        seen.extend(context.messages[-1]["content"])
        yield Message(content="read")

    content = [{"type": "text", "text": "look"}, image, part]
    async with serving(tmp_path, ScriptedAgent(script)) as service:
        await service.events(request(chat_id="c", messages=[{"role": "user", "content": content}]))
        stored = (await service.client.get("/v1/chats/c/messages")).json()["messages"][0]["content"]
    assert seen[:2] == content[:2]
    assert isinstance(seen[2], dict)
    assert seen[2]["type"] == "text"
    assert read in seen[2]["text"]
    assert "file_data" not in str(stored)
