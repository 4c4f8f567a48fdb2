"""Signed links to the whole result of a call, for users whose page shows only the beginning of it."""

import hmac
import time
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

SIGNATURE_CHARS = 43


@dataclass(frozen=True, slots=True)
class Links:
    """Makes and verifies links that are valid for `seconds`; 0 disables links. `public_url` is the server's address."""

    public_url: str
    seconds: float
    key: bytes = field(repr=False)

    def to_result(self, chat_id: str, tool_call_id: str) -> str | None:
        """Return a link to the whole result of a stored call; None if links are disabled."""
        if not self.seconds:
            return None
        expires = int(time.time() + self.seconds)
        query = {"chat_id": chat_id, "expires": expires, "signature": self._sign(chat_id, tool_call_id, expires)}
        path = f"/v1/tool-calls/{quote(tool_call_id, safe='')}"
        return f"{self.public_url.rstrip('/')}{path}?{urlencode(query)}"

    def allow(self, chat_id: str, tool_call_id: str, expires: str, signature: str) -> bool:
        """Return whether the signature is valid and the link has not expired."""
        if not self.seconds or not (expires.isascii() and expires.isdigit() and len(expires) < 16):
            return False
        expected = self._sign(chat_id, tool_call_id, int(expires))
        return hmac.compare_digest(signature.encode(), expected.encode()) and time.time() < int(expires)

    def _sign(self, chat_id: str, tool_call_id: str, expires: int) -> str:
        # The length makes the pair of ids unambiguous: different pairs never give the same bytes.
        message = f"{len(chat_id)}:{chat_id}{tool_call_id}:{expires}".encode()
        return hmac.digest(self.key, message, "sha256").hex()[:SIGNATURE_CHARS]
