"""Signing in to the inspector: once with an API key, then with a signed cookie.

A cookie is signed with the stored form of its key and a secret in the store. It is therefore valid until it expires or
its key changes, even after a restart and on all servers that share the store. The file of key hashes alone is not
enough to forge a cookie. If the server has no keys, no sign-in is needed. The cookie is then a random value, from which
form tokens are made.
"""

import hmac
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from secrets import token_bytes, token_hex, token_urlsafe

from starlette.requests import HTTPConnection
from starlette.responses import Response

from callboard.errors import Unauthorized
from callboard.http import Authenticate
from callboard.storage import Store

COOKIE = "callboard_inspect"
SESSION_SECONDS = 12 * 3600
"""A session lasts for a working day."""

NAMESPACE = "inspector"
COOKIE_SECRET = "cookies"  # noqa: S105 - the key of the record

FindSecret = Callable[[str], bytes | None]
"""A function that returns the stored form of the API key with this name; None if there is no such key."""

_UNSIGNED = re.compile(r"[\w-]{43}", re.ASCII)
_SIGNED = re.compile(r"(?P<until>[0-9]{1,12})\.(?P<caller>(?:[0-9a-f]{2})*)\.[\w-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Session:
    """A session of a browser.

    Attributes:
        cookie: The value of its cookie.
        is_new: The cookie has not been sent to the browser yet.
        caller: The name of the key that was used to sign in.
    """

    cookie: str
    is_new: bool = False
    caller: str | None = None

    @property
    def token(self) -> str:
        """The token in every form of this session's pages. Pages of other sites cannot know it."""
        return hmac.new(self.cookie.encode(), b"form", "sha256").hexdigest()

    def owns(self, token: str) -> bool:
        """Return whether a form with this token comes from a page of this session."""
        return hmac.compare_digest(token.encode(), self.token.encode())


class SigningIn:
    """Finds and creates sessions. `keys` are the names of the keys that may sign in; None allows all keys."""

    def __init__(self, authenticate: Authenticate | None, keys: Collection[str] | None = None) -> None:
        self._authenticate = authenticate
        self._keys = keys
        self._cookie_secret = token_bytes()
        random_secret = token_bytes()
        # If the application's own authentication has no stored keys, sessions end when the server restarts.
        self._find_secret: FindSecret = getattr(authenticate, "find_secret", lambda _: random_secret)

    async def open(self, store: Store) -> None:
        """Read the cookie secret from the store, and create it if it is missing. Raises `StorageError`."""
        records = store.records(NAMESPACE, "")
        if await records.get(COOKIE_SECRET) is None:
            # `put_new`, because several servers may start at the same time, and all must use one secret.
            await records.put_new(COOKIE_SECRET, token_hex())
        found = await records.get(COOKIE_SECRET)
        assert found is not None
        self._cookie_secret = str(found.value).encode()

    @property
    def is_needed(self) -> bool:
        """Whether the server has keys."""
        return self._authenticate is not None

    async def find(self, connection: HTTPConnection) -> Session | None:
        """Return the session of a request; None if its sender must sign in first.

        A request with a valid API key in its headers gets a new session without a sign-in.
        """
        cookie = connection.cookies.get(COOKIE, "")
        if self._authenticate is None:
            return Session(cookie) if _UNSIGNED.fullmatch(cookie) else Session(token_urlsafe(32), is_new=True)
        if (caller := self._read_cookie(cookie)) is not None:
            return Session(cookie, caller=caller)
        return await self._authorize(connection)

    async def sign_in(self, connection: HTTPConnection, key: str) -> Session | None:
        """Return a new session if the key is valid; otherwise None."""
        others = [(name, value) for name, value in connection.scope["headers"] if name != b"authorization"]
        headers = [*others, (b"authorization", b"Bearer " + key.strip().encode())]
        return await self._authorize(HTTPConnection({**connection.scope, "headers": headers}))

    async def _authorize(self, connection: HTTPConnection) -> Session | None:
        """Return a new session if the request may use the API and its key may sign in; otherwise None."""
        assert self._authenticate is not None
        try:
            principal = await self._authenticate(connection)
        except Unauthorized:
            return None
        # The pages show the chats of all users, so the key of one user must be named in CALLBOARD_INSPECT_KEYS.
        if principal is None or (principal.user_id is not None and principal.name not in (self._keys or ())):
            return None
        return self.begin(principal.name)

    def begin(self, caller: str) -> Session | None:
        """Return a new session for the key with this name; None if there is no such key."""
        content = f"{int(time.time()) + SESSION_SECONDS}.{caller.encode().hex()}.{token_urlsafe(16)}"
        signature = self._sign(content, caller)
        return Session(f"{content}.{signature}", is_new=True, caller=caller) if signature else None

    def _read_cookie(self, cookie: str) -> str | None:
        """Return the name of a cookie's key; None if the cookie is invalid or has expired."""
        content, _, signature = cookie.rpartition(".")
        if not (parts := _SIGNED.fullmatch(content)):
            return None
        caller = bytes.fromhex(parts["caller"]).decode("utf-8", "replace")
        expected = self._sign(content, caller)
        # Compared in constant time, so that the time does not show how much of a forged signature is correct.
        if expected is None or not hmac.compare_digest(signature.encode(), expected.encode()):
            return None
        return caller if time.time() < int(parts["until"]) else None

    def _sign(self, content: str, caller: str) -> str | None:
        secret = self._find_secret(caller) if self._keys is None or caller in self._keys else None
        if secret is None:
            return None
        key = hmac.digest(self._cookie_secret, secret, "sha256")
        return hmac.new(key, content.encode(), "sha256").hexdigest()


def send_cookie(response: Response, session: Session, path: str, *, is_secure: bool) -> None:
    """Set the cookie of the session. It is sent only to the inspector's pages, and scripts cannot read it."""
    response.set_cookie(
        COOKIE,
        session.cookie,
        max_age=SESSION_SECONDS,
        path=path,
        secure=is_secure,
        httponly=True,
        samesite="strict",
    )


def delete_cookie(response: Response, path: str) -> None:
    """Delete the cookie of the session."""
    response.delete_cookie(COOKIE, path=path, httponly=True, samesite="strict")
