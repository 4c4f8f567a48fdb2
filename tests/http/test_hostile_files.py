"""Files and pages made to use up time and memory end in an error message and do not delay other users."""

import asyncio
import base64
import gzip
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pypdf
import pytest
from pypdf.generic import DictionaryObject, NameObject, StreamObject

from callboard.agents import RunContext
from callboard.errors import ToolError
from callboard.reading import Download, Page, pdf, read_apart
from callboard.reading.attached import Attached, read_attached
from callboard.reading.pages import decode, read_page
from callboard_protocol import Event, Message
from tests.http.readers import broken, hungry, printing
from tests.serving import ScriptedAgent, request, serving


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
