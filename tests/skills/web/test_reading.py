"""From bytes to text: charsets, pages that are no articles, PDFs that are none."""

import codecs
import io

import pypdf
import pytest

from callboard.errors import ToolError
from callboard.reading import Download, Kind
from callboard.reading.pages import decode, read_page
from tests.skills.web.documents import pdf


def given(body: bytes, kind: Kind | None = None, charset: str | None = None) -> Download:
    return Download("https://site.example/page", kind, charset, "", body)


@pytest.mark.parametrize(
    ("body", "charset", "text"),
    [
        ("Bühne".encode(), None, "Bühne"),
        ("Bühne".encode("latin-1"), "iso-8859-1", "Bühne"),
        ("“Bühne” €".encode("cp1252"), "ISO-8859-1", "“Bühne” €"),
        ("“Bühne”".encode("cp1252"), "us-ascii", "“Bühne”"),
        ("舞台".encode("shift_jis"), "Shift_JIS", "舞台"),
        ("戲臺".encode("gbk"), "gb2312", "戲臺"),
        (codecs.BOM_UTF8 + "Bühne".encode(), "iso-8859-1", "Bühne"),
        ("Bühne".encode("utf-16"), "utf-8", "Bühne"),
        ("Bühne".encode(), "no-such-charset", "Bühne"),
        ("Bühne".encode(), "hex", "Bühne"),
        ("Bühne".encode(), "utf-8\0", "Bühne"),
        (b'<meta charset="windows-1251">' + "Сцена".encode("cp1251"), None, '<meta charset="windows-1251">Сцена'),
        (b'<?xml encoding="koi8-r"?>' + "Сцена".encode("koi8-r"), None, '<?xml encoding="koi8-r"?>Сцена'),
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
        (b"  <HTML><p>Hello there", "Hello there"),
        (b"Hello there", "Hello there"),
        (pdf("Hello there"), "## Page 1\n\nHello there"),
    ],
)
def test_missing_content_type_is_detected(body: bytes, text: str) -> None:
    assert read_page(given(body)).text == text


def test_a_file_of_another_kind_is_an_error() -> None:
    with pytest.raises(ToolError, match="another kind"):
        read_page(given(b"\x7fELF\0\0\0\0"))


@pytest.mark.parametrize(
    ("html", "wanted"),
    [
        ("<p>A piece of a page</p>", "A piece of a page"),
        ("<html><body>" + "<a href='/q'>A link</a><br>" * 30 + "</body></html>", "A link"),
        ("<html><body><form><label>A form</label><input></form></body></html>", "A form"),
        ("<html><body>" + "<div>" * 3000 + "Deep down", None),
    ],
)
def test_page_without_article_returns_its_text(html: str, wanted: str | None) -> None:
    if wanted is None:
        with pytest.raises(ToolError, match="has no text"):
            read_page(given(html.encode(), "html"))
    else:
        assert wanted in read_page(given(html.encode(), "html")).text


def test_a_page_without_text_is_an_error_that_says_why() -> None:
    with pytest.raises(ToolError, match="drawn by a script"):
        read_page(given(b"<html><body><div id=root></div><script>go()</script></body></html>", "html"))


def test_characters_that_cannot_be_stored_are_replaced() -> None:
    assert read_page(given(b"a\0b", "text")).text == "a\ufffdb"


def test_a_title_is_one_line_and_not_endless() -> None:
    page = read_page(given(b"<html><head><title>a\n b" + b" c" * 1000 + b"</title><body><p>Text here.</p>", "html"))
    assert page.title.startswith("a b c c")
    assert len(page.title) == 300


@pytest.mark.parametrize(
    "body",
    [
        b"%PDF-1.4 and nothing else",
        pdf("x")[:150],
        pdf("x").replace(b"/Kids", b"/Kid5"),
        b"%PDF-" + b"1 0 obj <<" * 2000,
    ],
)
def test_invalid_pdf_is_error(body: bytes) -> None:
    with pytest.raises(ToolError, match=r"PDF that cannot be read|has no text"):
        read_page(given(body, "pdf"))


def test_a_pdf_with_a_password_is_an_error_that_says_so() -> None:
    writer = pypdf.PdfWriter()
    writer.add_blank_page(100, 100)
    writer.encrypt("secret", algorithm="RC4-128")
    file = io.BytesIO()
    writer.write(file)
    with pytest.raises(ToolError, match="asks for a password"):
        read_page(given(file.getvalue(), "pdf"))
