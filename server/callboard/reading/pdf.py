"""Extracts the text of PDFs page by page, within limits of pages, characters and time."""

import io
import time

import pypdf
from pypdf.errors import DependencyError, PyPdfError

from callboard.errors import ToolError
from callboard.reading.formats import Page

MAX_PAGES = 1_000
MAX_SECONDS = 15.0
MAX_CPU_SECONDS = 8.0
"""After this time the remaining pages are left out. The limits of the process stop a single page that takes longer."""

# The errors that pypdf raises for damaged files and for encryption that it does not support.
_FAULTS = (
    PyPdfError,
    DependencyError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    NotImplementedError,
    RecursionError,
)


def read_pdf(body: bytes, name: str, max_chars: int) -> Page:
    """Return the title and the text of a PDF. A last line in the text says which pages are left out.

    `name` is the name of the file in error messages. Raises `ToolError` if the file needs a password or is damaged.
    """
    end = time.monotonic() + MAX_SECONDS
    end_of_work = time.process_time() + MAX_CPU_SECONDS
    parts: list[str] = []
    length = 0
    try:
        reader = pypdf.PdfReader(io.BytesIO(body))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ToolError(f"{name} is a PDF that asks for a password: use a copy without one.")
        title = str((reader.metadata and reader.metadata.title) or "")
        total = len(reader.pages)
        for number, page in enumerate(reader.pages, 1):
            is_too_long = length > max_chars or number > MAX_PAGES
            if is_too_long or time.monotonic() > end or time.process_time() > end_of_work:
                reason = "the file is too long" if is_too_long else "reading them takes too long"
                parts.append(f"(Pages {number} to {total} are left out: {reason}.)")
                break
            if text := page.extract_text().strip():
                parts.append(f"## Page {number}\n\n{text}")
                length += len(parts[-1])
    except _FAULTS as error:
        raise ToolError(f"{name} is a PDF that cannot be read ({type(error).__name__}): use another copy.") from error
    return Page(title, "\n\n".join(parts))
