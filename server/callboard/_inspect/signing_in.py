"""Signing in: an API key once, then a cookie that is signed.

The cookie holds until its time is over or its key is another, or gone: it is signed with what the key is known by and a
secret of the store. So a server that is started again knows it, as do others that share the store; and who has read the
file of hashes can make none. Without a key nobody signs in; the cookie is then a random value, from which the tokens of
forms are made.
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
SESSION_SECONDS = 12 * 3600
"""A working day."""

NAMESPACE = "inspector"
COOKIE_SECRET = "cookies"  # noqa: S105 - the key that it is kept under

FindSecret = Callable[[str], bytes | None]
"""What cookies are signed with, by the name of the key that somebody signed in with."""

_UNSIGNED = re.compile(r"[\w-]{43}", re.ASCII)
_SIGNED = re.compile(r"(?P<until>[0-9]{1,12})\.(?P<caller>(?:[0-9a-f]{2})*)\.[\w-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who may look; `cookie` is what their browser sends, `is_new` where it has not been sent it yet.

    `caller` is the name of the key that they signed in with.
    """

    cookie: str
    is_new: bool = False
    caller: str | None = None

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
        self._kept = token_bytes()
        own = token_bytes()
        # Who authenticates by something else than keys of ours signs in anew after a restart.
        self._find_secret: FindSecret = getattr(authenticate, "find_secret", lambda _: own)

    async def open(self, store: Store) -> None:
        """Sign with the secret of a store too, made now if there is none; raises `StorageError`."""
        records = store.records(NAMESPACE, "")
        if await records.get(COOKIE_SECRET) is None:
            # Of servers that start at one time one makes it.
            await records.put_new(COOKIE_SECRET, token_hex())
        found = await records.get(COOKIE_SECRET)
        assert found is not None
        self._kept = str(found.value).encode()

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
        if (caller := self._read(cookie)) is not None:
            return Session(cookie, caller=caller)
        return await self._begin_for(connection)

    async def sign_in(self, connection: HTTPConnection, key: str) -> Session | None:
        """Return a new session for who has the key, None for who has not."""
        others = [(name, value) for name, value in connection.scope["headers"] if name != b"authorization"]
        headers = [*others, (b"authorization", b"Bearer " + key.strip().encode())]
        return await self._begin_for(HTTPConnection({**connection.scope, "headers": headers}))

    async def _begin_for(self, connection: HTTPConnection) -> Session | None:
        """Return a new session for who may use the API, None for who may not."""
        assert self._authenticate is not None
        try:
            principal = await self._authenticate(connection)
        except Unauthorized:
            return None
        # The pages show the chats of all users: the caller of one user gets in only if CALLBOARD_INSPECT_KEYS names it.
        if principal is None or (principal.user_id is not None and principal.name not in (self._keys or ())):
            return None
        return self.begin(principal.name)

    def begin(self, caller: str) -> Session | None:
        """Return a new session for who has the key of that name, None where there is none."""
        content = f"{int(time.time()) + SESSION_SECONDS}.{caller.encode().hex()}.{token_urlsafe(16)}"
        signature = self._sign(content, caller)
        return Session(f"{content}.{signature}", is_new=True, caller=caller) if signature else None

    def _read(self, cookie: str) -> str | None:
        """Return whose cookie it is, None where it is none of ours, or holds no more."""
        content, _, signature = cookie.rpartition(".")
        if not (parts := _SIGNED.fullmatch(content)):
            return None
        caller = bytes.fromhex(parts["caller"]).decode("utf-8", "replace")
        wanted = self._sign(content, caller)
        # Constant time: the answer must not tell how much of a forged one was right.
        if wanted is None or not hmac.compare_digest(signature.encode(), wanted.encode()):
            return None
        return caller if time.time() < int(parts["until"]) else None

    def _sign(self, content: str, caller: str) -> str | None:
        secret = self._find_secret(caller) if self._keys is None or caller in self._keys else None
        if secret is None:
            return None
        key = hmac.digest(self._kept, secret, "sha256")
        return hmac.new(key, content.encode(), "sha256").hexdigest()


def send_cookie(response: Response, session: Session, path: str, *, is_secure: bool) -> None:
    """Let the browser keep the session: for the inspector's pages alone, and out of the reach of scripts."""
    response.set_cookie(
        COOKIE,
        session.cookie,
        max_age=SESSION_SECONDS,
        path=path,
        secure=is_secure,
        httponly=True,
        samesite="strict",
    )


def take_cookie_back(response: Response, path: str) -> None:
    """Let the browser forget the session."""
    response.delete_cookie(COOKIE, path=path, httponly=True, samesite="strict")
