"""Sign-ins of users at other services in the middle of a call, and the tokens that they bring, encrypted in the store.

The browser comes back to this server, perhaps to another process than the one with the call. Both know each sign-in by
its `state`, from a record that exists while the call waits.
"""

import asyncio
import base64
import hmac
import json
import time
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import anyio

from callboard._keys import make_token_key
from callboard.errors import SettingsError
from callboard.settings import Settings
from callboard.storage import Store
from callboard.storage.sql.sqlite import SqliteDatabase
from callboard.storage.values import TOKENS, Record, digest
from callboard_protocol import User

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

CALLBACK_PATH = "/oauth/callback"
SIGN_IN_SECONDS = 600.0
"""The time for a sign-in. People may have to find a password and a second factor."""

POLL_SECONDS = 0.5
NAMESPACE = "sign-ins"
BACK = "back"
"""Ends the key of the record with the query that the browser came back with."""


class SignIns:
    """The sign-ins of an application, and its users' tokens. Methods raise `SettingsError` and `StorageError`."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings

    @property
    def callback_url(self) -> str:
        """The address to which browsers come back."""
        base = self._settings.public_url or self._settings.own_url
        if base is None:
            raise SettingsError("set CALLBOARD_PUBLIC_URL to the server's address for browsers, which return to it")
        return base.rstrip("/") + CALLBACK_PATH

    @cached_property
    def _cipher(self) -> "Fernet":
        from cryptography.fernet import Fernet

        key = self._settings.token_key
        if key is None and not isinstance(self._store.database, SqliteDatabase):
            # Several servers may share the database, and a key in a file of each would not open the others' tokens.
            raise SettingsError(
                "set CALLBOARD_TOKEN_KEY, which encrypts the users' tokens, to the same long random string for all "
                "servers of the database: `openssl rand -hex 32` makes one"
            )
        secret = key.get_secret_value() if key else make_token_key(self._settings.data_dir)
        return Fernet(base64.urlsafe_b64encode(hmac.digest(secret.encode(), b"callboard tokens", "sha256")))

    async def load(self, user_id: str, service: str) -> Any:
        """Return the kept value of a user for a service; None if there is none, or it cannot be decrypted."""
        return self._open(await self._store.records(TOKENS, user_id).get(digest(service)))

    async def save(self, user_id: str, service: str, value: Any) -> None:
        """Keep a JSON value of a user for a service, encrypted. It is deleted with the user."""
        await self._store.records(TOKENS, user_id).put(digest(service), self._seal(value))

    async def begin(self, state: str, user: User, service: str) -> None:
        """Open a sign-in, before the user is asked: the browser may come back at once."""
        records = self._store.records(NAMESPACE, "")
        for old in await records.find():
            if _is_over(old):  # of a server that was lost
                await records.remove(old.key)
        # With the address or the id, because users can change their names.
        shown = f"{user.name} ({user.email or user.id})" if user.name else user.id
        await records.put(digest(state), self._seal({"user": shown, "service": service}))

    async def wait(self, state: str, question: asyncio.Future[Any]) -> Mapping[str, str] | None:
        """Return the query with which the browser comes back; None if the answer to the question is not True.

        Closes the question and the sign-in. Raises `TimeoutError`.
        """
        records = self._store.records(NAMESPACE, "")
        key = digest(state)
        try:
            async with asyncio.timeout(SIGN_IN_SECONDS):
                while (back := await records.get(key + BACK)) is None:
                    if question.done() and question.result() is not True:
                        return None
                    await asyncio.sleep(POLL_SECONDS)  # another process may put it
            return dict(self._open(back) or {})
        finally:
            question.cancel()
            # Shielded, because anyio cancels again and again, also what removes the sign-in.
            with anyio.CancelScope(shield=True):
                await asyncio.wait({question})
                await records.remove(key)
                await records.remove(key + BACK)

    async def find(self, state: str) -> Mapping[str, str] | None:
        """Return the names of the `user` and the `service` of an open sign-in; None if there is none with the state."""
        record = await self._store.records(NAMESPACE, "").get(digest(state))
        return None if record is None or _is_over(record) else self._open(record)

    async def finish(self, state: str, query: Mapping[str, str]) -> bool:
        """Give an open sign-in its query; False if it has one already."""
        return await self._store.records(NAMESPACE, "").put_new(digest(state) + BACK, self._seal(dict(query)))

    def _seal(self, value: Any) -> str:
        return self._cipher.encrypt(json.dumps(value).encode()).decode()

    def _open(self, record: Record | None) -> Any:
        from cryptography.fernet import InvalidToken

        try:
            return None if record is None else json.loads(self._cipher.decrypt(str(record.value).encode()))
        except InvalidToken:
            return None


def _is_over(record: Record) -> bool:
    return record.updated_at + SIGN_IN_SECONDS < time.time()
