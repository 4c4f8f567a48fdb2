"""From bytes to text: charsets, pages that are no articles, PDFs that are none."""

import codecs
import io

import pypdf
import pytest

from callboard.errors import ToolError
from callboard.reading.formats import Download, Kind
from callboard.reading.pages import decode, read_page
from tests.skills.web.documents import pdf


def given(body: bytes, kind: Kind | None = None, charset: str | None = None) -> Download:
    return Download("https://site.example/page", kind, charset, "", body)


@pytest.mark.parametrize(
    ("body", "charset", "text"),
    [
        ("“Bühne” €".encode("cp1252"), "ISO-8859-1", "“Bühne” €"),
        ("舞台".encode("shift_jis"), "Shift_JIS", "舞台"),
        (codecs.BOM_UTF8 + "Bühne".encode(), "iso-8859-1", "Bühne"),
        ("Bühne".encode(), "no-such-charset", "Bühne"),
        (b'<meta charset="windows-1251">' + "Сцена".encode("cp1251"), None, '<meta charset="windows-1251">Сцена'),
        (b"\xfd\x81 ok", "utf-8", "\ufffd\ufffd ok"),
    ],
)
def test_text_is_decoded_by_declared_charset(body: bytes, charset: str | None, text: str) -> None:
    assert decode(body, charset) == text


def test_missing_charset_is_guessed() -> None:
    text = "Der Vorhang fällt, das Stück ist aus, und die Zuschauer gehen fröhlich nach Hause. " * 5
    assert decode(text.encode("latin-1"), None) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"<!DOCTYPE html><html><body><p>Hello there</p></body></html>", "Hello there"),
        (pdf("One", "Two"), "## Page 1\n\nOne\n\n## Page 2\n\nTwo"),
    ],
)
def test_missing_content_type_is_detected(body: bytes, text: str) -> None:
    assert read_page(given(body)).text == text


@pytest.mark.parametrize(
    ("html", "wanted"),
    [
        ("<html><body>" + "<a href='/q'>A link</a><br>" * 30 + "</body></html>", "A link"),
        ("<html><body><form><label>A form</label><input></form></body></html>", "A form"),
    ],
)
def test_page_without_article_returns_its_text(html: str, wanted: str) -> None:
    assert wanted in read_page(given(html.encode(), "html")).text


FAULTS: list[tuple[bytes, Kind | None, str]] = [
    (b"\x7fELF\0\0\0\0", None, "another kind"),
    (b"<html><body>" + b"<div>" * 3000 + b"Deep down", "html", "has no text"),
    (b"<html><body><div id=root></div><script>go()</script></body></html>", "html", "drawn by a script"),
    (pdf("x")[:150], "pdf", "PDF that cannot be read|has no text"),
    (b"%PDF-" + b"1 0 obj <<" * 2000, "pdf", "PDF that cannot be read|has no text"),
]


@pytest.mark.parametrize(("body", "kind", "said"), FAULTS)
def test_file_without_a_text_is_an_error_that_says_why(body: bytes, kind: Kind | None, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        read_page(given(body, kind))


def test_characters_that_cannot_be_stored_are_replaced() -> None:
    assert read_page(given(b"a\0b", "text")).text == "a\ufffdb"


def test_a_title_is_one_line_and_not_endless() -> None:
    page = read_page(given(b"<html><head><title>a\n b" + b" c" * 1000 + b"</title><body><p>Text here.</p>", "html"))
    assert page.title.startswith("a b c c")
    assert len(page.title) == 300


def test_a_pdf_with_a_password_is_an_error_that_says_so() -> None:
    writer = pypdf.PdfWriter()
    writer.add_blank_page(100, 100)
    writer.encrypt("secret", algorithm="RC4-128")
    file = io.BytesIO()
    writer.write(file)
    with pytest.raises(ToolError, match="asks for a password"):
        read_page(given(file.getvalue(), "pdf"))
