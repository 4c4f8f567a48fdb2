"""From the bytes of a page to its text in Markdown. Blocking, and slow for long pages: for a thread."""

import codecs
import io
import re
from dataclasses import dataclass

import pypdf
import trafilatura
from charset_normalizer import from_bytes
from pypdf.errors import DependencyError, PyPdfError

from callboard.errors import ToolError
from callboard.skills.web.download import Download, Kind, unpacked
from callboard.text import storable

MAX_PDF_CHARS = 2_000_000
SNIFFED_BYTES = 4096
TITLE_CHARS = 300

_META_CHARSET = re.compile(
    rb"<(?:meta|\?xml)[^>]{0,500}?(?:charset|encoding)\s*=\s*[\"']?\s*([\w:.-]{1,40})", re.IGNORECASE
)
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
# How browsers read these, and so they are meant (WHATWG Encoding).
_MEANT = {"ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030"}
# What pypdf stumbles over in files that are no good PDF.
_PDF_FAULTS = (
    PyPdfError,
    DependencyError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class Page:
    """A page's title, empty where it has none, and its text."""

    title: str
    text: str


def read_page(page: Download) -> Page:
    """What stands on a page. Raises `ToolError` where that is no text."""
    body = unpacked(page)
    kind = page.kind or _sniffed(body, page)
    match kind:
        case "pdf":
            read = _read_pdf(body, page.url)
        case "html":
            read = _read_html(decoded(body, page.charset), page.url)
        case "text":
            read = Page("", decoded(body, page.charset))
    if not read.text.strip():
        raise ToolError(f"{page.url} has no text: it may be drawn by a script, or be a scan. Try another page.")
    return Page(storable(" ".join(read.title.split())[:TITLE_CHARS]), storable(read.text))


def decoded(body: bytes, charset: str | None) -> str:
    """The text of `body`: by its byte order mark, the charset that came with it, its own word, UTF-8, or a guess."""
    declared = _META_CHARSET.search(body[:SNIFFED_BYTES])
    named = [mark for begin, mark in _MARKS if body.startswith(begin)]
    named += [name for name in (charset, declared and declared[1].decode("ascii")) if name]
    for name in named:
        try:
            codec = codecs.lookup(name).name
            return body.decode(_MEANT.get(codec, codec), "replace")
        except (LookupError, UnicodeError, ValueError):
            continue  # No such charset, or one that is no text (`hex`): as if none had been named.
    try:
        return body.decode()
    except UnicodeDecodeError:
        guess = from_bytes(body[: 16 * SNIFFED_BYTES]).best()
        return body.decode(guess.encoding if guess else "cp1252", "replace")


def _sniffed(body: bytes, page: Download) -> Kind:
    begin = body[:SNIFFED_BYTES]
    if begin.startswith(b"%PDF-"):
        return "pdf"
    if b"\0" in begin and not begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ToolError(f"{page.url} is a file of another kind: only HTML, text and PDF can be read.")
    return "html" if re.match(rb"\s*<(!doctype\s+html|html|head|body)\b", begin, re.IGNORECASE) else "text"


def _read_html(html: str, url: str) -> Page:
    if not re.search(r"<(html|body)\b", html[:SNIFFED_BYTES], re.IGNORECASE):
        # trafilatura takes a piece of HTML alone for no HTML at all.
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
    # Lists of links, forms and the like are no article: then all of the page's text is better than none.
    return Page((metadata and metadata.title) or "", text or trafilatura.html2txt(html))


def _read_pdf(body: bytes, url: str) -> Page:
    try:
        reader = pypdf.PdfReader(io.BytesIO(body))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ToolError(f"{url} is a PDF that asks for a password: look for another copy.")
        title = str((reader.metadata and reader.metadata.title) or "")
        parts: list[str] = []
        length = 0
        for number, page in enumerate(reader.pages, 1):
            if length > MAX_PDF_CHARS:
                parts.append(f"(Pages {number} to {len(reader.pages)} are left out: the file is too long.)")
                break
            if text := page.extract_text().strip():
                parts.append(f"## Page {number}\n\n{text}")
                length += len(parts[-1])
    except _PDF_FAULTS as error:
        raise ToolError(
            f"{url} is a PDF that cannot be read ({type(error).__name__}): look for another copy."
        ) from error
    return Page(title, "\n\n".join(parts))
