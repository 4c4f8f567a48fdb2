"""Converts untrusted bytes to text: PDFs, web pages, attached files.

`read_apart` runs the parsers in a child process with limits on time and memory, because they are third-party code that
can be slow and use much memory.
"""

from callboard.reading.apart import read_apart, read_web_page
from callboard.reading.formats import MAX_BYTES, Download, Kind, Page

__all__ = ["MAX_BYTES", "Download", "Kind", "Page", "read_apart", "read_web_page"]
