"""The model behind any endpoint that speaks OpenAI's chat completions, streaming.

`callboard.models.retries` says when a request is sent again, `callboard.models.endpoint_stream` reads the answer within
bounds, and `callboard.models.chunks` reads what endpoints really send.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from copy import copy
from typing import Any
from urllib.parse import urlsplit

import httpx
import structlog

from callboard._redaction import hide_key
from callboard._trace_context import pass_on_to_model
from callboard._version import __version__
from callboard.errors import (
    ModelCutOff,
    ModelError,
    ModelRateLimited,
    ModelRefused,
    ModelTimeout,
    ModelUnauthorized,
    ModelUnreachable,
)
from callboard.models.accepted import Accepted
from callboard.models.chunks import ChunkReader
from callboard.models.descriptions import describe_model
from callboard.models.endpoint_stream import (
    CutOff,
    EndpointError,
    UnreadableAnswer,
    bound_body,
    read_chunks,
    read_error,
    read_json,
    send,
)
from callboard.models.finish_reasons import KNOWN_REASONS
from callboard.models.model import (
    Finish,
    ModelDelta,
    ModelDescription,
    ModelRequest,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    select_options,
)
from callboard.models.refusals import CONTEXT_TOO_LONG, FILTERED, REFUSED, upstream_code
from callboard.models.retries import RetryPolicy
from callboard.models.tls import tls_context

CONNECT_TIMEOUT_SECONDS = 10.0
MAX_CONNECTIONS = 1000
MAX_IDLE_CONNECTIONS = 100
DETAIL_CHARS = 500
MAX_STOPS = 4
"""The most stop sequences of a request: OpenAI takes four; so do most that copy it."""

_FAILURES = (EndpointError, CutOff, httpx.HTTPError, TimeoutError, ValueError, RecursionError)
"""The errors that asking an endpoint can end in; `ValueError` is for an answer or a request that is no JSON."""

_log = structlog.get_logger(__name__)


class OpenAICompatible:
    """A model behind `POST {base_url}/chat/completions`; with `model` None the first that `/models` lists.

    `timeout_seconds` bounds the wait for the answer to begin, retries included, and each
    silence within it. Messages of errors name the setting to change and never hold the key. Raises `ModelError` for a
    key that no HTTP header can hold.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        model: str | None = None,
        timeout_seconds: float = 300.0,
        max_retries: int = 2,
    ) -> None:
        self._model = model or ""
        self._secret = (api_key or "").strip()
        self._address = _without_credentials(base_url)
        self._timeout_seconds = timeout_seconds
        self._retries = RetryPolicy(max_retries)
        self._client = _make_client(httpx.URL(base_url), self._secret, timeout_seconds)
        self._accepted = Accepted()

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that no log, event or row may hold."""
        return (self._secret,) if self._secret else ()

    @property
    def name(self) -> str:
        """The model's id at its endpoint; empty until the endpoint was asked for it."""
        return self._model

    @property
    def address(self) -> str:
        """The endpoint's address, without a key or a password that stands in it."""
        return self._address

    def named(self, name: str) -> "OpenAICompatible":
        """Return another model of the same endpoint, over the same connections."""
        other = copy(self)
        other._model = name
        return other

    async def find_name(self) -> str:
        """Return the model's id, the first that the endpoint lists where none was given. Raises `ModelError`."""
        if not self._model:
            names = await self.list_names()
            if not names:
                raise ModelError(f"The model endpoint {self._address} lists no models: name one in CALLBOARD_MODEL.")
            self._model = names[0]
        return self._model

    async def list_names(self) -> list[str]:
        """Return the models that the endpoint serves, as it lists them. Raises `ModelError` and its kin."""
        try:
            deadline = self._deadline()
            async with asyncio.timeout_at(deadline):
                listed = await read_json(await self._send("GET", "models", deadline))
        except _FAILURES as error:
            raise self._explain(error) from error
        entries = listed.get("data") if isinstance(listed, dict) else None
        names = [entry.get("id") for entry in entries or () if isinstance(entry, dict)]
        return [name for name in names if isinstance(name, str) and name]

    async def describe(self) -> ModelDescription:
        """Return what the endpoint tells of the model and its chat template; an empty description where it does not."""
        return await describe_model(self._client, self._model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Yield the answer as it comes, always with a `Finish` (its reason None where there was none).

        A request is sent again if its answer is cut off before it said anything, once, and if `Accepted` can change
        what the endpoint refuses of it. Raises `ModelUnauthorized` (401,
        403), `ModelRateLimited` (429), `ModelRefused` (400), `ModelTimeout`, `ModelUnreachable`, `ModelCutOff` (the
        stream ended in the middle) and `ModelError` (the rest).
        """
        await self.find_name()
        written = self._write(request)
        may_be_cut_off = self._retries.max_retries > 0
        is_begun = False
        while True:
            body = self._accepted.fit(written)
            try:
                async with aclosing(self._ask(body)) as deltas:
                    async for delta in deltas:
                        is_begun = is_begun or not isinstance(delta, TokenUsage)
                        yield delta
            except _FAILURES as error:
                if isinstance(error, CutOff):
                    may_ask_again, may_be_cut_off = may_be_cut_off, False
                else:
                    may_ask_again = isinstance(error, EndpointError) and self._learn(body, error)
                if is_begun or not may_ask_again:
                    raise self._explain(error) from error
            else:
                return

    async def _ask(self, body: dict[str, Any]) -> AsyncGenerator[ModelDelta, None]:
        finished = has_words = has_usage_last = False
        reader = ChunkReader()
        deadline = self._deadline()
        async with asyncio.timeout_at(deadline):
            response = await self._send("POST", "chat/completions", deadline, body)
        try:
            async with aclosing(response), aclosing(read_chunks(response)) as chunks:
                async for chunk in chunks:
                    deltas = list(reader.read(chunk))
                    if deltas:
                        has_usage_last = all(isinstance(delta, TokenUsage) for delta in deltas)
                    for delta in deltas:
                        if isinstance(delta, Finish):
                            finished = True
                            self._warn_of_unknown(delta)
                        has_words = has_words or isinstance(delta, TextDelta | ToolCallDelta)
                        yield delta
        except CutOff:
            # Some endpoints end with their reason, or the usage of the whole answer, and leave `[DONE]` out.
            if not finished and not (has_words and has_usage_last):
                raise
        if not finished:
            yield Finish(None)

    async def aclose(self) -> None:
        """Close the connections that are kept open for reuse."""
        await self._client.aclose()

    def _learn(self, body: dict[str, Any], error: EndpointError) -> bool:
        """Return whether the next request to the endpoint leaves out or adds what it refused this one for."""
        return error.status in REFUSED and self._accepted.learn(body, f"{error.detail} {error.body}")

    def _write(self, request: ModelRequest) -> dict[str, Any]:
        """Return the body of a request, as OpenAI has it."""
        body: dict[str, Any] = {
            "model": self._model,
            "messages": list(request.messages),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        body |= select_options(request.options)
        if request.tools:
            body["tools"] = list(request.tools)
            if request.must_call:
                body["tool_choice"] = "required"
            if request.one_call:
                body["parallel_tool_calls"] = False
        if stops := _merge_stops(body.pop("stop", None), request.stops):
            body["stop"] = stops
        return body

    async def _send(self, method: str, path: str, deadline: float, body: object = None) -> httpx.Response:
        """Return an answer that has begun, sending the request again as `callboard.models.retries` says.

        The caller closes it. Raises `EndpointError` for an answer without success.
        """
        loop = asyncio.get_running_loop()
        retries = 0
        while True:
            try:
                response = await send(self._client, self._client.build_request(method, path, json=body))
            except httpx.TransportError:
                delay = self._retries.delay_seconds(retries, None, deadline - loop.time())
                if delay is None:
                    raise
            else:
                if response.is_success:
                    return response
                delay = self._retries.delay_seconds(retries, response, deadline - loop.time())
                if delay is None:
                    raise await read_error(response)
                await response.aclose()
            await asyncio.sleep(delay)
            retries += 1

    def _warn_of_unknown(self, finish: Finish) -> None:
        """Say in the log that a reason is not known: the answer then counts as whole."""
        if finish.reason not in KNOWN_REASONS:
            _log.warning("unknown_finish_reason", reason=finish.reason, model=self._model)

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout_seconds

    def _explain(self, error: Exception) -> ModelError:
        where = f"The model endpoint {self._address}"
        match error:
            case EndpointError():
                return self._explain_refusal(error)
            case UnreadableAnswer():
                return ModelError(f"{where} {self._without_key(str(error))}. Check CALLBOARD_MODEL_BASE_URL.")
            case CutOff():
                return ModelCutOff(
                    f"{where} ended its answer in the middle, without saying that it had finished. "
                    "What came until then is all there is: ask again, and look at its log if it happens often."
                )
            case httpx.ConnectTimeout():
                return ModelTimeout(
                    f"{where} did not accept a connection within {self._client.timeout.connect:g} s. "
                    "Check that it runs and that CALLBOARD_MODEL_BASE_URL is right."
                )
            case TimeoutError() | httpx.TimeoutException():
                return ModelTimeout(
                    f"{where} did not answer within {self._timeout_seconds:g} s. "
                    "Try again, or set CALLBOARD_MODEL_BASE_URL to a faster one."
                )
            case httpx.HTTPError():
                return ModelUnreachable(
                    f"{where} cannot be reached or cut the connection ({self._without_key(_find_reason(error))}). "
                    "Check that it runs and that CALLBOARD_MODEL_BASE_URL is right."
                )
            case _:
                return ModelError(
                    f"The request to the model endpoint {self._address} cannot be written as JSON "
                    f"({self._without_key(str(error))[:DETAIL_CHARS]}): change what is sent."
                )

    def _explain_refusal(self, error: EndpointError) -> ModelError:
        where = f"The model endpoint {self._address}"
        status = error.status
        detail = " ".join(self._without_key(error.detail).split())[:DETAIL_CHARS].rstrip(" .")
        code = upstream_code(error.body, detail)
        if status in REFUSED or (status is None and code in (CONTEXT_TOO_LONG, FILTERED)):
            too_long = "Begin a new chat, or set CALLBOARD_HISTORY_TOKENS below what the model can read."
            advice = too_long if code == CONTEXT_TOO_LONG else "Change what is sent: the same again is refused again."
            request = "the request" if status is None else f"the request ({status})"
            return ModelRefused(f"{where} refused {request}: {detail}. {advice}", code)
        if status in (401, 403):
            return ModelUnauthorized(
                f"{where} refused the key ({status}): {detail}. Set CALLBOARD_MODEL_API_KEY to one that it accepts."
            )
        if status == 429:
            return ModelRateLimited(
                f"{where} is over its limit (429): {detail}. "
                "Wait a little, or use another endpoint or key (CALLBOARD_MODEL_BASE_URL, CALLBOARD_MODEL_API_KEY)."
            )
        outcome = f"{where} failed" if status is None else f"{where} answered {status}"
        advice = "Check CALLBOARD_MODEL_BASE_URL (often it ends in /v1)" if status == 404 else "Look at its log"
        return ModelError(
            f"{outcome}: {detail}. {advice} and check that CALLBOARD_MODEL ({self._model}) is one it serves."
        )

    def _without_key(self, text: str) -> str:
        # Some endpoints quote the key that they refuse.
        return hide_key(text, self._secret)


def _merge_stops(asked: object, own: Sequence[str]) -> list[str]:
    """Return the client's stop sequences, then as many of the format's own as there is room for.

    The format's save tokens and no more: its reader cuts off what comes after them.
    """
    client_stops = [asked] if isinstance(asked, str) else list(asked) if isinstance(asked, list) else []
    merged = list(dict.fromkeys([*client_stops, *own]))
    if left_out := merged[MAX_STOPS:]:
        too_many = [stop for stop in left_out if stop in client_stops]
        _log.log(logging.WARNING if too_many else logging.DEBUG, "stop_sequences_left_out", left_out=left_out)
    return merged[:MAX_STOPS]


def _find_reason(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__


def _without_credentials(base_url: str) -> str:
    parts = urlsplit(base_url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _make_client(base_url: httpx.URL, key: str, timeout_seconds: float) -> httpx.AsyncClient:
    if not re.fullmatch(r"[\x20-\x7e]*", key):
        # httpx would quote the key in its own message.
        raise ModelError("CALLBOARD_MODEL_API_KEY holds a character that no key has: copy the key again.")
    headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": f"callboard/{__version__}"}
    return httpx.AsyncClient(
        base_url=base_url.copy_with(query=None, fragment=None),
        params=base_url.params,
        headers=headers | ({"Authorization": f"Bearer {key}"} if key else {}),
        timeout=httpx.Timeout(timeout_seconds, connect=min(CONNECT_TIMEOUT_SECONDS, timeout_seconds)),
        limits=httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_IDLE_CONNECTIONS),
        verify=tls_context(),
        event_hooks={"request": [pass_on_to_model], "response": [bound_body]},
    )
