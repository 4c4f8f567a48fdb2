"""Signing in: an API key once, then a cookie that is signed.

The cookie holds until its time is over or its key is another: it says which key it was given for, and is signed with
what that key is known by and a secret of the store. So a server that is started again knows it, as do others that share
the store; a key that is taken away takes its cookies along; and who has read the file of hashes can make none. Without
a key nobody signs in; the cookie is then a number that only the page that sent it can know, for the tokens of forms.
"""

import hmac
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from secrets import token_bytes, token_hex, token_urlsafe

from starlette.requests import HTTPConnection
from starlette.responses import Response

from callboard._http.auth import Authenticate
from callboard.errors import Unauthorized
from callboard.storage import Store

COOKIE = "callboard_inspect"
LIFETIME_SECONDS = 12 * 3600
"""A working day."""

NAMESPACE = "inspector"
COOKIE_SECRET = "cookies"  # noqa: S105 - the key that it is kept under

_UNSIGNED = re.compile(r"[\w-]{43}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who may look; `cookie` is what their browser sends, `is_new` where it has not been sent it yet.

    `key` is the name of the key that they have signed in with, None where nobody is asked for one.
    """

    cookie: str
    is_new: bool = False
    key: str | None = None

    @property
    def token(self) -> str:
        """The token that every form of this session's pages carries: no other page knows it."""
        return hmac.new(self.cookie.encode(), b"form", "sha256").hexdigest()

    def owns(self, token: str) -> bool:
        """Return whether a form was one of this session's pages."""
        return hmac.compare_digest(token.encode(), self.token.encode())


class SigningIn:
    """Knows sessions, and begins one for who has a key; `keys` are the names of those that count, None for all."""

    def __init__(self, authenticate: Authenticate | None, keys: Collection[str] | None = None) -> None:
        self._authenticate = authenticate
        self._keys = keys
        self._secret = token_bytes()
        # Who authenticates by something else than a key of ours signs in anew after a restart.
        own_mark = token_bytes()
        self._find_mark: Callable[[str], bytes | None] = getattr(authenticate, "find_mark", lambda _: own_mark)

    async def open(self, store: Store) -> None:
        """Sign with the secret of a store, made now if there is none; raises `StorageError`."""
        records = store.records(NAMESPACE, "")
        if await records.get(COOKIE_SECRET) is None:
            # Of servers that start at one time one makes it.
            await records.put_new(COOKIE_SECRET, token_hex())
        found = await records.get(COOKIE_SECRET)
        assert found is not None
        self._secret = str(found.value).encode()

    @property
    def is_needed(self) -> bool:
        """Return whether there is a key."""
        return self._authenticate is not None

    async def find(self, connection: HTTPConnection) -> Session | None:
        """Return the session of a request; None where somebody is to sign in first.

        Who may use the API, by a header of the request, may look as well.
        """
        cookie = connection.cookies.get(COOKIE, "")
        if self._authenticate is None:
            return Session(cookie) if _UNSIGNED.fullmatch(cookie) else Session(token_urlsafe(32), is_new=True)
        return self._read(cookie) or await self._begin(connection)

    async def sign_in(self, connection: HTTPConnection, key: str) -> Session | None:
        """Return a new session for who has a key, None for who has not."""
        others = [(name, value) for name, value in connection.scope["headers"] if name != b"authorization"]
        headers = [*others, (b"authorization", b"Bearer " + key.strip().encode())]
        return await self._begin(HTTPConnection({**connection.scope, "headers": headers}))

    async def _begin(self, connection: HTTPConnection) -> Session | None:
        assert self._authenticate is not None
        try:
            principal = await self._authenticate(connection)
        except Unauthorized:
            return None
        return self._make(principal.name) if principal else None

    def _make(self, key: str) -> Session | None:
        """Return a new session of a key's, None where the key does not count."""
        said = f"{int(time.time()) + LIFETIME_SECONDS}.{token_urlsafe(16)}.{key.encode().hex()}"
        signature = self._sign(said, key)
        return Session(f"{said}.{signature}", is_new=True, key=key) if signature else None

    def _read(self, cookie: str) -> Session | None:
        said, _, signature = cookie.rpartition(".")
        try:
            key = bytes.fromhex(said.rpartition(".")[2]).decode()
        except ValueError:
            return None
        expected = self._sign(said, key)
        # Constant time: the answer must not tell how much of a forged one was right.
        if expected is None or not hmac.compare_digest(signature.encode(), expected.encode()):
            return None
        is_over = time.time() >= int(said.partition(".")[0])
        return None if is_over else Session(cookie, key=key)

    def _sign(self, said: str, key: str) -> str | None:
        """Return the signature of what a cookie says; None where there is no such key, or it does not count."""
        mark = self._find_mark(key) if self._keys is None or key in self._keys else None
        if mark is None:
            return None
        return hmac.new(hmac.digest(self._secret, mark, "sha256"), said.encode(), "sha256").hexdigest()


def send_cookie(response: Response, session: Session, path: str, *, is_secure: bool) -> None:
    """Let the browser keep the session: for the inspector's pages alone, and out of the reach of scripts."""
    response.set_cookie(
        COOKIE,
        session.cookie,
        max_age=LIFETIME_SECONDS,
        path=path,
        secure=is_secure,
        httponly=True,
        samesite="strict",
    )


def take_cookie_back(response: Response, path: str) -> None:
    """Let the browser forget the session."""
    response.delete_cookie(COOKIE, path=path, httponly=True, samesite="strict")
