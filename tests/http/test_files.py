"""Files of tools, files attached by users, hostile ones too, and links to full results."""

import asyncio
import base64
import gzip
import io
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pypdf
import pytest
from pydantic import SecretStr
from pypdf import PdfWriter
from pypdf.generic import DictionaryObject, NameObject, StreamObject

from callboard.agents import RunContext
from callboard.errors import ToolError
from callboard.reading import pdf
from callboard.reading.apart import read_apart
from callboard.reading.attached import Attached, read_attached
from callboard.reading.formats import Download, Page
from callboard.reading.pages import decode, read_page
from callboard.runs import files
from callboard_protocol import Event, Message, ToolCallComplete, ToolCallStart
from tests.http.readers import broken, hungry, printing
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


async def test_results_have_no_links_by_default_or_if_their_run_is_not_stored(tmp_path: Path) -> None:
    links = {"api_key": KEY, "result_link_seconds": 60, "public_url": "http://x"}
    for name, settings, fields in (("default", {"api_key": KEY}, {"chat_id": "c"}), ("unstored", links, {})):
        async with serving(tmp_path / name, ScriptedAgent(pictures), **settings) as service:
            service.client.headers["Authorization"] = f"Bearer {KEY.get_secret_value()}"
            assert (await completed(service, **fields)).result_url is None


def blank_pdf() -> bytes:
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
        (attached("a.pdf", f"data:application/pdf;base64,{base64.b64encode(blank_pdf()).decode()}"), 'name="a.pdf"'),
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


# ----------------------------------------------------------------------- files and pages made to use up time and memory


def saved(writer: pypdf.PdfWriter) -> bytes:
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def slow_pdf(pages: int = 400) -> bytes:
    """A small file with many pages that share one long content: minutes of reading."""
    writer = pypdf.PdfWriter()
    font = DictionaryObject({NameObject("/Type"): NameObject("/Font"), NameObject("/Subtype"): NameObject("/Type1")})
    font[NameObject("/BaseFont")] = NameObject("/Helvetica")
    resources = DictionaryObject({NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})})
    content = StreamObject()
    content.set_data(b"BT /F1 12 Tf (word) Tj " + b"1 0 0 1 72 720 Tm () Tj " * 4_000 + b"ET")
    shared = writer._add_object(content.flate_encode())
    for _ in range(pages):
        page = writer.add_blank_page(612, 792)
        page[NameObject("/Resources")] = resources
        page[NameObject("/Contents")] = shared
    return saved(writer)


def encrypted_pdf(algorithm: str, password: str = "") -> bytes:
    writer = pypdf.PdfWriter()
    writer.add_blank_page(100, 100)
    writer.encrypt(password, algorithm=algorithm)
    return saved(writer)


def pdf_for_a_public_key() -> bytes:
    writer = pypdf.PdfWriter()
    writer.add_blank_page(100, 100)
    writer.encrypt("", algorithm="AES-128")
    body = saved(writer)
    return body.replace(b"/Filter /Standard", b"/Filter /Adobe.PubSec").replace(b"/Standard", b"/Adobe.PubSec")


def data_url(body: bytes) -> str:
    return f"data:application/pdf;base64,{base64.b64encode(body).decode()}"


def asking(*files: bytes, user: str) -> dict[str, object]:
    parts = [{"type": "file", "file": {"filename": "a.pdf", "file_data": data_url(file)}} for file in files]
    return request(messages=[{"role": "user", "content": parts}], user={"id": user})


async def told(context: RunContext) -> AsyncIterator[Event]:
    """Says what it was told."""
    content = context.messages[-1]["content"]
    yield Message(content=content if isinstance(content, str) else "".join(part["text"] for part in content))


def said(events: list[Event]) -> str:
    return "".join(event.content for event in events if isinstance(event, Message))


async def test_a_users_readings_wait_for_each_other_and_not_for_those_of_others(tmp_path: Path) -> None:
    slow = asyncio.create_task(read("slow.pdf", slow_pdf(), user="mallory"))
    second = asyncio.create_task(read("second.pdf", encrypted_pdf("AES-256"), user="mallory"))
    assert (await read("quick.pdf", encrypted_pdf("AES-256"), user="ann")).text == ""
    assert not slow.done()
    assert not second.done()
    slow.cancel()
    assert (await second).text == ""


async def read(name: str, body: bytes, user: str = "ann") -> Attached:
    return await read_apart(read_attached, data_url(body), name, into=Attached, name=name, user=user)


def test_of_a_long_pdf_the_beginning_is_read_and_the_rest_left_out_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "MAX_CPU_SECONDS", 0.5)
    read_so_far = read_attached(data_url(slow_pdf()), "slow.pdf")
    assert read_so_far.text is not None
    assert read_so_far.text.startswith("## Page 1\n\nword")
    assert read_so_far.text.endswith("are left out: reading them takes too long.)")


@pytest.mark.parametrize("algorithm", ["RC4-40", "RC4-128", "AES-128", "AES-256-R5", "AES-256"])
def test_an_encrypted_pdf_without_a_password_is_read_and_with_one_says_so(algorithm: str) -> None:
    assert read_attached(data_url(encrypted_pdf(algorithm)), "a.pdf").text == ""
    with pytest.raises(ToolError, match=r"a\.pdf is a PDF that asks for a password"):
        read_attached(data_url(encrypted_pdf(algorithm, "secret")), "a.pdf")


async def test_a_pdf_that_nobody_here_can_read_is_told_of_and_the_chat_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(told)) as service:
        for body in (pdf_for_a_public_key(), b"%PDF-1.4 and nothing else"):
            answer = said(await service.events(asking(body, user="ann")))
            assert "The user attached a.pdf, which cannot be read" in answer
        assert said(await service.events(request(user={"id": "ann"}))) == "hi"


@pytest.mark.slow
async def test_a_page_that_is_small_on_the_wire_and_large_in_memory_ends_in_words() -> None:
    bomb = gzip.compress(b"<p>a" * 1_200_000)
    assert len(bomb) < 8 * 1024
    page = Download("https://site.example/", "html", None, "gzip", bomb)
    with pytest.raises(ToolError, match=r"takes|cannot be read"):
        await read_apart(read_page, page, into=Page, name=page.url, user="ann")


@pytest.mark.parametrize("charset", ["punycode", "idna", "unicode_escape", "raw_unicode_escape", "utf-7", "hex", "zip"])
def test_a_charset_that_is_none_of_the_webs_is_not_used(charset: str) -> None:
    assert decode("Bühne, a-b-".encode(), charset) == "Bühne, a-b-"


async def test_a_reader_that_takes_too_much_memory_or_fails_is_words() -> None:
    with pytest.raises(ToolError, match="it takes too much memory"):
        await read_apart(hungry, 1, into=Page, name="it", user="ann")
    with pytest.raises(ToolError, match=r"it cannot be read \(ZeroDivisionError\)"):
        await read_apart(broken, 1, into=Page, name="it", user="ann")
    assert await read_apart(printing, 1, into=Page, name="it", user="ann") == Page("title", "text")
