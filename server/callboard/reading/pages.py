"""Converts the body of a web page to Markdown. Some pages take very long: call it through `read_apart`."""

import codecs
import re

import trafilatura
from charset_normalizer import from_bytes

from callboard.errors import ToolError
from callboard.reading.formats import Download, Kind, Page
from callboard.reading.pdf import read_pdf
from callboard.text import storable

MAX_PDF_CHARS = 2_000_000
SNIFFED_BYTES = 4096
TITLE_CHARS = 300

_META_CHARSET = re.compile(
    rb"<(?:meta|\?xml)[^>]{0,500}?(?:charset|encoding)\s*=\s*[\"']?\s*([\w:.-]{1,40})", re.IGNORECASE
)
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
# Browsers read these charsets as larger ones, so pages rely on that (WHATWG Encoding).
_BROWSER_CODECS = {"ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030"}
# Python's codecs for the encodings of the web (WHATWG Encoding). Pages use no others, and some others take quadratic
# time (`punycode`, `idna`).
_WEB_CODECS = re.compile(
    r"utf-8(-sig)?|utf-(16|32)(-[bl]e)?|ascii|iso8859-\d+|cp(866|874|932|949|950|125\d)|koi8-[ru]|mac-(roman|cyrillic)|"
    r"tis-620|gb2312|gbk|gb18030|big5(hkscs)?|euc_(jp|kr)|iso2022_jp|shift_jis"
)


def read_page(page: Download) -> Page:
    """Return the title and the text of a page. Raises `ToolError` if the body is not text."""
    body = page.unpack()
    kind = page.kind or _sniff_kind(body, page)
    match kind:
        case "pdf":
            read = read_pdf(body, page.url, MAX_PDF_CHARS)
        case "html":
            read = _read_html(decode(body, page.charset), page.url)
        case "text":
            read = Page("", decode(body, page.charset))
    if not read.text.strip():
        raise ToolError(f"{page.url} has no text: it may be drawn by a script, or be a scan. Try another page.")
    return Page(storable(" ".join(read.title.split())[:TITLE_CHARS]), storable(read.text))


def decode(body: bytes, charset: str | None) -> str:
    """Decode `body` by the first of these that applies.

    Its byte order mark, `charset` from the header, the charset declared in the body, UTF-8, a guess.
    """
    declared = _META_CHARSET.search(body[:SNIFFED_BYTES])
    named = [mark for begin, mark in _MARKS if body.startswith(begin)]
    named += [name for name in (charset, declared and declared[1].decode("ascii")) if name]
    for name in named:
        if codec := _find_codec(name):
            return body.decode(codec, "replace")
    try:
        return body.decode()
    except UnicodeDecodeError:
        guess = from_bytes(body[: 16 * SNIFFED_BYTES]).best()
        return body.decode(guess.encoding if guess else "cp1252", "replace")


def _find_codec(charset: str) -> str | None:
    """Return the codec that browsers use for a charset; None if the charset is not one of the web's."""
    try:
        codec = codecs.lookup(charset).name
    except (LookupError, ValueError):
        return None
    return _BROWSER_CODECS.get(codec, codec) if _WEB_CODECS.fullmatch(codec) else None


def _sniff_kind(body: bytes, page: Download) -> Kind:
    begin = body[:SNIFFED_BYTES]
    if begin.startswith(b"%PDF-"):
        return "pdf"
    if b"\0" in begin and not begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ToolError(f"{page.url} is a file of another kind: only HTML, text and PDF can be read.")
    return "html" if re.match(rb"\s*<(!doctype\s+html|html|head|body)\b", begin, re.IGNORECASE) else "text"


def _read_html(html: str, url: str) -> Page:
    if not re.search(r"<(html|body)\b", html[:SNIFFED_BYTES], re.IGNORECASE):
        # trafilatura does not recognise a fragment of HTML as HTML.
        html = f"<html><body>{html}</body></html>"
    text = trafilatura.extract(
        html,
        url=url,
        output_format="markdown",
        include_links=True,
        include_tables=True,
        include_formatting=True,
        include_comments=False,
        favor_recall=True,
    )
    metadata = trafilatura.extract_metadata(html, extensive=False)
    # trafilatura extracts nothing from pages without an article, such as lists of links. Then take all text.
    return Page((metadata and metadata.title) or "", text or trafilatura.html2txt(html))
