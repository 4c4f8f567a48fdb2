"""Sends a run's input to an AG-UI endpoint, and reads the events of its answer."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any

import anyio
import httpx

from callboard.errors import AgentError, ModelCutOff, ModelError, ModelUnauthorized
from callboard.frameworks.failures import DETAIL_CHARS, model_error
from callboard.models.endpoint_stream import (
    CutOff,
    EndpointError,
    UnreadableAnswer,
    bound_body,
    read_error,
    read_events,
    send,
)
from callboard.redaction import secrets_in_url
from callboard.tls import tls_context

CONNECT_TIMEOUT_SECONDS = 10
TAIL_SECONDS = 2
"""How long the rest of an answer is read after its last event: some servers store the thread only then."""


class Endpoint:
    """The address of an agent. `address` is its URL without credentials and parameters.

    Raises `AgentError` for a URL to which no request can be sent.
    """

    def __init__(self, url: str, timeout_seconds: float) -> None:
        try:
            self._url = httpx.URL(url)
        except (httpx.InvalidURL, TypeError) as error:
            raise AgentError(f"from_agui takes the address of an AG-UI endpoint: {error}.") from error
        if self._url.scheme not in ("http", "https") or not self._url.host:
            raise AgentError("from_agui takes the address of an AG-UI endpoint, which begins with http:// or https://.")
        self.host = self._url.netloc.decode("ascii").rpartition("@")[2]
        self.address = f"{self._url.scheme}://{self.host}{self._url.path}"
        self.subject = f"The agent at {self.address}"
        self.secrets = secrets_in_url(url)
        self._timeout_seconds = timeout_seconds

    async def stream(
        self, body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> AsyncGenerator[Mapping[str, Any], None]:
        """Send a run's input, and yield the events up to the last one. Raises `ModelError`."""
        # The answer is decompressed by `bound_body`, within limits.
        sent = {"Accept": "text/event-stream", "Accept-Encoding": "identity", **headers}
        hooks = {"response": [bound_body]}
        timeout = httpx.Timeout(self._timeout_seconds, connect=CONNECT_TIMEOUT_SECONDS)
        try:
            async with httpx.AsyncClient(timeout=timeout, verify=tls_context(), event_hooks=hooks) as client:
                request = client.build_request("POST", self._url, json=body, headers=sent)
                response = await send(client, request, follow_redirects=False)
                async with aclosing(response), aclosing(read_events(response)) as values:
                    await self._check(response)
                    async for value in values:
                        if isinstance(value, Mapping):
                            yield value
                            if value.get("type") == "RUN_FINISHED":
                                with (
                                    anyio.move_on_after(TAIL_SECONDS),
                                    suppress(EndpointError, UnreadableAnswer, CutOff, httpx.HTTPError, ValueError),
                                ):
                                    async for _ in values:
                                        pass
                                return
        except UnreadableAnswer as error:
            words = str(error)[:DETAIL_CHARS]
            raise ModelError(f"{self.subject} {words}. Check that an agent speaks AG-UI there.") from error
        except (EndpointError, CutOff, httpx.HTTPError, ValueError) as error:
            raise model_error(error, subject=self.subject, always=True) or error from error
        raise ModelCutOff(
            f"{self.subject} ended its answer without the event RUN_FINISHED, so the answer is incomplete: look at its "
            "log, and ask again."
        )

    async def _check(self, response: httpx.Response) -> None:
        """Raise an error unless the response may be a stream of events."""
        if response.has_redirect_location:
            # Not followed: the headers may be secret.
            location = response.url.join(response.headers["Location"])
            raise UnreadableAnswer(f"redirects to {location}: give from_agui that address")
        match response.status_code:
            case 401 | 403 as status:
                # Without the endpoint's message, because some endpoints quote the key that they refuse.
                advice = "give from_agui the headers= that it accepts"
                raise ModelUnauthorized(f"{self.subject} refused the request ({status}): {advice}.")
            case 404 | 405 as status:
                raise UnreadableAnswer(f"answered {status}: give from_agui the whole address of the agent's route")
        if not response.is_success:
            raise await read_error(response)
        kind = response.headers.get("Content-Type", "").partition(";")[0]
        if kind not in ("", "text/event-stream", "text/plain"):
            raise UnreadableAnswer(f"answered with {kind[:100]} instead of text/event-stream")
