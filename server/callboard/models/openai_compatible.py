"""The model behind any endpoint that speaks OpenAI's chat completions, streaming.

The openai library is the transport (connections, retries, `Retry-After`). What comes back is read by
`callboard.models.endpoint_stream` within bounds, and by `callboard.models.chunks`, as the library's own classes do not
survive what endpoints really send.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from copy import copy
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai
import structlog

from callboard._trace_context import pass_on_to_model
from callboard.errors import (
    ModelCutOff,
    ModelError,
    ModelRateLimited,
    ModelRefused,
    ModelTimeout,
    ModelUnauthorized,
    ModelUnreachable,
)
from callboard.models.chunks import read_chunk
from callboard.models.descriptions import describe_model
from callboard.models.endpoint_stream import CutOff, UnreadableAnswer, bound_body, read_chunks
from callboard.models.model import MODEL_OPTIONS, Finish, ModelDelta, ModelDescription, ModelRequest, TokenUsage
from callboard.models.refusals import CONTEXT_TOO_LONG, REFUSED, upstream_code

CONNECT_TIMEOUT_SECONDS = 10.0
DETAIL_CHARS = 500
MAX_STOPS = 4
"""The most stop sequences of a request: OpenAI takes four; so do most that copy it."""

_log = structlog.get_logger(__name__)


class _ErrorChunk(ValueError):
    """An error object in mid-stream, its fields as `body`."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(str(body.get("message") or "error"))
        self.message = str(self)
        self.body = body


class OpenAICompatible:
    """A model behind `POST {base_url}/chat/completions`; with `model` None the first that `/models` lists.

    `timeout_seconds` bounds the wait for the answer to begin, retries included, and each
    silence within it. Messages of errors name the setting to change and never hold the key.
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
        self._http = openai.DefaultAsyncHttpxClient(
            event_hooks={"request": [pass_on_to_model], "response": [bound_body]}
        )
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            # The library takes OPENAI_API_KEY where it is given none: that key is for another endpoint.
            api_key=self._secret or "none",
            timeout=openai.Timeout(timeout_seconds, connect=min(CONNECT_TIMEOUT_SECONDS, timeout_seconds)),
            max_retries=max_retries,
            default_headers={"Accept-Encoding": "identity"},
            http_client=self._http,
        )
        self._max_retries = max_retries
        self._takes_one_call = True

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
            async with asyncio.timeout(self._timeout_seconds):
                listed = await self._client.get("/models", cast_to=object)
        except _FAILURES as error:
            raise self._explain(error) from error
        entries = listed.get("data") if isinstance(listed, dict) else None
        names = [entry.get("id") for entry in entries or () if isinstance(entry, dict)]
        return [name for name in names if isinstance(name, str) and name]

    async def describe(self) -> ModelDescription:
        """Return what the endpoint tells of the model and its chat template; an empty description where it does not."""
        return await describe_model(self._http, self._client.base_url, self._client.auth_headers, self._model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Yield the answer as it comes, always with one `Finish` (its reason None where there was none).

        An answer that is cut off before it said anything is asked for once more. Raises `ModelUnauthorized` (401,
        403), `ModelRateLimited` (429), `ModelRefused` (400), `ModelTimeout`, `ModelUnreachable`, `ModelCutOff` (the
        stream ended in the middle) and `ModelError` (the rest).
        """
        await self.find_name()
        may_ask_again = self._max_retries > 0
        is_whole = False
        while not is_whole:
            try:
                async with aclosing(self._ask(request)) as deltas:
                    async for delta in deltas:
                        may_ask_again = may_ask_again and isinstance(delta, TokenUsage)
                        yield delta
                is_whole = True
            except _FAILURES as error:
                failure = self._explain(error)
                if not (may_ask_again and isinstance(failure, ModelCutOff)):
                    raise failure from error
                may_ask_again = False

    async def _ask(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        finished = False
        async with asyncio.timeout(self._timeout_seconds):
            answer = await self._open(request)
        try:
            async for chunk in read_chunks(answer.response):
                _raise_for_error_chunk(chunk)
                for delta in read_chunk(chunk):
                    finished = finished or isinstance(delta, Finish)
                    yield delta
        except CutOff:
            # Some endpoints end with their reason alone and leave `[DONE]` out.
            if not finished:
                raise
        finally:
            await answer.close()
        if not finished:
            yield Finish(None)

    async def aclose(self) -> None:
        """Close the connections that are kept open for reuse."""
        await self._client.close()

    async def _open(self, request: ModelRequest) -> openai.AsyncStream[object]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": list(request.messages),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        body |= {name: value for name, value in request.options.items() if name in MODEL_OPTIONS}
        if request.tools:
            body["tools"] = list(request.tools)
            if request.must_call:
                body["tool_choice"] = "required"
            if request.one_call and self._takes_one_call:
                body["parallel_tool_calls"] = False
        if stops := _merge_stops(body.pop("stop", None), request.stops):
            body["stop"] = stops
        try:
            return await self._post(body)
        except openai.APIStatusError as error:
            is_about_it = error.status_code in REFUSED and "parallel_tool_calls" in f"{error.message} {error.body}"
            if body.pop("parallel_tool_calls", None) is None or not is_about_it:
                raise
            # Not every endpoint knows it: what it is for, the loop holds to by itself.
            self._takes_one_call = False
            return await self._post(body)

    async def _post(self, body: dict[str, Any]) -> openai.AsyncStream[object]:
        return await self._client.post(
            "/chat/completions", cast_to=object, body=body, stream=True, stream_cls=openai.AsyncStream[object]
        )

    def _explain(self, error: Exception) -> ModelError:
        where = f"The model endpoint {self._address}"
        match error:
            case UnreadableAnswer():
                return ModelError(f"{where} {error}. Check CALLBOARD_MODEL_BASE_URL.")
            case CutOff() | httpx2.TransportError() if not isinstance(error, httpx2.TimeoutException):
                return ModelCutOff(
                    f"{where} ended its answer in the middle, without saying that it had finished. "
                    "What came until then is all there is: ask again, and look at its log if it happens often."
                )
            case openai.APITimeoutError() | TimeoutError() | httpx2.TimeoutException():
                return ModelTimeout(
                    f"{where} did not answer within {self._timeout_seconds:g} s. "
                    "Try again, or set CALLBOARD_MODEL_BASE_URL to a faster one."
                )
            case openai.APIConnectionError():
                return ModelUnreachable(
                    f"{where} cannot be reached or cut the connection ({self._without_key(_find_reason(error))}). "
                    "Check that it runs and that CALLBOARD_MODEL_BASE_URL is right."
                )
            case openai.APIStatusError():
                return self._explain_refusal(error.status_code, self._find_detail(error), error.body)
            case _ErrorChunk():
                return self._explain_refusal(_find_status(error.body), self._find_detail(error), error.body)
            case _:
                return ModelError(f"{where} sent what is not JSON. Check CALLBOARD_MODEL_BASE_URL.")

    def _explain_refusal(self, status: int | None, detail: str, body: object) -> ModelError:
        where = f"The model endpoint {self._address}"
        code = upstream_code(body, detail)
        if status in REFUSED or (status is None and code == CONTEXT_TOO_LONG):
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

    def _find_detail(self, error: openai.APIStatusError | _ErrorChunk) -> str:
        match error.body:
            case {"message": str() as message} if message:
                text = message
            case str() as body if body:
                # It is no JSON, or cut: its beginning says more than the library does.
                text = body[: 2 * DETAIL_CHARS]
            case _:
                text = error.message
        return " ".join(self._without_key(text).split())[:DETAIL_CHARS].rstrip(" .")

    def _without_key(self, text: str) -> str:
        # Some endpoints quote the key that they refuse.
        return text.replace(self._secret, "…") if self._secret else text


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


_FAILURES = (openai.OpenAIError, httpx2.HTTPError, TimeoutError, ValueError, RecursionError, CutOff)
"""The errors that asking an endpoint can end in; `ValueError` is for what cannot be read."""


def _raise_for_error_chunk(chunk: object) -> None:
    """Raise the error object that some endpoints send in mid-stream."""
    if not isinstance(chunk, dict):
        return
    if chunk.get("object") == "error":
        raise _ErrorChunk(chunk)
    match chunk.get("error"):
        case dict() as error:
            raise _ErrorChunk(error)
        case str() as message if message:
            raise _ErrorChunk({"message": message})


def _find_status(body: object) -> int | None:
    # OpenRouter, vLLM and others put the HTTP status that it would have been into `code`.
    code = body.get("code") if isinstance(body, dict) else None
    if isinstance(code, str) and code.isdecimal():
        code = int(code)
    return code if isinstance(code, int) and 400 <= code <= 599 else None


def _find_reason(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__


def _without_credentials(base_url: str) -> str:
    parts = urlsplit(base_url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
