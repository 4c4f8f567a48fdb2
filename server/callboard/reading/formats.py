"""The input and the output of readers: a download, which is unpacked only up to its limit, and a page of text."""

import zlib
from dataclasses import dataclass
from typing import Literal

from callboard.errors import ToolError

MAX_BYTES = {"html": 5 * 2**20, "text": 5 * 2**20, "pdf": 20 * 2**20}
"""The size limit of a body in bytes by its kind, both as it is sent and unpacked."""

Kind = Literal["html", "text", "pdf"]


@dataclass(frozen=True, slots=True)
class Download:
    """The body of a response as it was sent, and perhaps compressed.

    `encoding` is its Content-Encoding and `charset` the charset of its Content-Type. `kind` is None if the server sent
    no known type; then the reader detects it from the body.
    """

    url: str
    kind: Kind | None
    charset: str | None
    encoding: str
    body: bytes

    @property
    def limit_bytes(self) -> int:
        """The size limit of the unpacked body."""
        return MAX_BYTES[self.kind or "text"]

    def unpack(self) -> bytes:
        """Return the decompressed body. Raises `ToolError` if it is broken or over its limit."""
        if not self.encoding:
            return self.body
        # gzip begins with 0x1f (RFC 1952) and zlib's format with 0x78 (RFC 1950), and zlib tells them apart. For
        # `deflate` some servers send a raw stream.
        window_bits = zlib.MAX_WBITS | 32 if self.body[:1] in (b"\x1f", b"\x78") else -zlib.MAX_WBITS
        try:
            body = zlib.decompressobj(window_bits).decompress(self.body, self.limit_bytes + 1)
        except zlib.error as error:
            raise ToolError(f"{self.url} sent a body that cannot be unpacked: try another page.") from error
        if len(body) > self.limit_bytes:
            raise self.too_large()
        return body

    def too_large(self) -> ToolError:
        """Return the error for a body over its limit."""
        return ToolError(f"{self.url} is larger than {self.limit_bytes >> 20} MiB: look for a smaller page.")


@dataclass(frozen=True, slots=True)
class Page:
    """A page's title, empty if it has none, and its text."""

    title: str
    text: str
