"""The bus through Redis pub/sub.

The URL of one node of a cluster is enough: a cluster forwards published messages to all nodes.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from callboard.errors import StorageError
from callboard.redaction import Redaction, secrets_in_url
from callboard.storage.bus import ConnectedBus, Send

CHANNEL = "callboard:runs"
CONNECT_SECONDS = 3
ANSWER_SECONDS = 5

_PATH = re.compile(r"/?[0-9]*")


class RedisBus(ConnectedBus):
    """The bus through the Redis at a URL; `address` is the URL for the log, see `read_address`."""

    def __init__(self, url: str, address: str) -> None:
        super().__init__(address)
        self._url = url
        self._redact = Redaction(secrets_in_url(url))

    @asynccontextmanager
    async def _connect(self, receive: Callable[[bytes], None]) -> AsyncIterator[Send]:
        # No retries in the client: the bus reconnects, and a repeated message would arrive too late.
        retry = Retry(NoBackoff(), 0)
        connecting: Redis = Redis.from_url(
            self._url, socket_connect_timeout=CONNECT_SECONDS, socket_timeout=ANSWER_SECONDS, retry=retry
        )
        async with connecting as client, client.pubsub(ignore_subscribe_messages=True) as subscription:
            await subscription.subscribe(CHANNEL)

            async def listen() -> None:
                async for message in subscription.listen():
                    receive(message["data"])

            async def send(messages: Sequence[bytes]) -> None:
                if listening.done():
                    listening.result()
                pipeline = client.pipeline(transaction=False)
                for message in messages:
                    pipeline.publish(CHANNEL, message)
                await pipeline.execute()

            listening = asyncio.create_task(listen(), name="bus of Redis")
            listening.add_done_callback(lambda _: self._wake.set())
            try:
                yield send
            finally:
                listening.cancel()
                await asyncio.wait({listening})

    def _describe(self, error: Exception) -> str:
        return self._redact(str(error))


def read_address(url: str) -> str:
    """Return the URL without user name, password and options; raises `StorageError` if it is not a valid Redis URL."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path:
            return f"unix://{parts.path}"
        is_valid = parts.scheme in ("redis", "rediss") and parts.hostname and _PATH.fullmatch(parts.path)
        if is_valid and not parts.fragment:
            return f"{parts.scheme}://{parts.hostname}:{parts.port or 6379}{parts.path}"
    except ValueError:
        pass
    # The message does not repeat the URL: the mistake may be in the password.
    raise StorageError(
        "CALLBOARD_REDIS_URL cannot be read: use redis://host:6379/0, rediss://name:password@host:6379/0 or "
        "unix:///run/redis.sock, with % codes for special characters in a password (%2F for /, %23 for #, %40 for @)"
    )
