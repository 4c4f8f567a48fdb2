"""A model behind any endpoint that implements OpenAI's chat completions with streaming.

`retries` decides when a request is repeated, `endpoint_stream` reads answers within size limits, and `chunks` reads the
deviations of real endpoints.
"""

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import httpx
import structlog

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
from callboard.models.chunks import KNOWN_REASONS, ChunkReader
from callboard.models.descriptions import describe_model
from callboard.models.endpoint_quirks import (
    EndpointQuirks,
    Quirk,
    refuses_details,
    refuses_pictures,
    without_details,
)
from callboard.models.endpoint_stream import (
    CONTEXT_TOO_LONG,
    FILTERED,
    REFUSAL_STATUSES,
    CutOff,
    EndpointError,
    UnreadableAnswer,
    bound_body,
    read_chunks,
    read_error,
    read_json,
    read_models,
    send,
    upstream_code,
)
from callboard.models.messages import content_text
from callboard.models.model import (
    ChatDict,
    Finish,
    ModelDelta,
    ModelDescription,
    ModelRequest,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    ToolsRefused,
    select_options,
)
from callboard.models.retries import find_retry_delay
from callboard.redaction import hide_key
from callboard.tls import tls_context

CONNECT_TIMEOUT_SECONDS = 10.0
MAX_CONNECTIONS = 1000
MAX_IDLE_CONNECTIONS = 100
DETAIL_CHARS = 500
TAIL_SECONDS = 5.0
"""The wait for more of an answer, such as its usage, after its finish reason."""
MAX_STOPS = 4
"""The most stop sequences in a request: OpenAI and most compatible endpoints accept four."""

_FAILURES = (EndpointError, CutOff, httpx.HTTPError, TimeoutError, ValueError, RecursionError)
"""The exceptions of a request. `ValueError` is for an answer or a request that is not JSON."""

_REFUSES_TOOLS = re.compile(
    # Ollama, OpenRouter, vLLM, llama.cpp.
    r"not support tools|support tool use|--enable-auto-tool-choice|tool-call-parser|tools param requires --jinja"
    # Groq, DashScope, Gemma at Google, DeepSeek.
    r"|(?:tools?|(?<!parallel )tool call(?:ing)?|function calling)`? (?:is|are) not (?:supported|enabled)"
    r"|not support function calling",
    re.IGNORECASE,
)
_CANNOT_READ_CALL = re.compile(
    # Groq, Ollama, llama.cpp: https://github.com/pydantic/pydantic-ai/pull/4354,
    # https://github.com/ollama/ollama/issues/12884, https://github.com/ggml-org/llama.cpp/issues/20532
    r"tool_use_failed|error parsing tool call|Failed to parse input at pos"
)
_PICTURES_ADVICE = "Ask again without the picture or file, or choose a model that can read it."
_TOOLS_ADVICE = (
    "Set CALLBOARD_TOOL_FORMAT=react, or list the model in CALLBOARD_REACT_MODELS: "
    "its tools are then described in the prompt."
)

_log = structlog.get_logger(__name__)


class OpenAICompatible:
    """A model behind `POST {base_url}/chat/completions`. If `model` is None, it is the first one that `/models` lists.

    `timeout_seconds` limits the wait for the first byte, with retries, and each pause after it. Error messages name the
    setting to change and never contain the key. Raises `ModelError` for a key that an HTTP header cannot hold.
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
        self.name = model or ""
        """The model's id at its endpoint, empty until the endpoint has been asked for it."""
        parts = urlsplit(base_url)
        self.address = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
        """The endpoint's address, without a key or password."""
        self._secret = (api_key or "").strip()
        self._timeout_seconds = timeout_seconds
        self._max_retries = max_retries
        self._client = _make_client(httpx.URL(base_url), self._secret, timeout_seconds)
        # By the model's name: a gateway has models of several makers.
        self._quirks: dict[str, EndpointQuirks] = defaultdict(EndpointQuirks)

    @property
    def refused_tools(self) -> Mapping[str, str]:
        """The names of the tools that the endpoint refuses and that are not offered, each with its words."""
        return {tool["name"]: self._quote(words) for tool, words in self._quirks[self.name].tools.refused}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that must not appear in logs, events or the database."""
        return (self._secret,) if self._secret else ()

    def named(self, name: str) -> "OpenAICompatible":
        """Return another model of the same endpoint, which shares the connections and what was learnt of each name."""
        other = copy(self)
        other.name = name
        return other

    async def find_name(self) -> str:
        """Return the model's id, or the first id that the endpoint lists if none was given. Raises `ModelError`."""
        if not self.name:
            names = await self.list_names()
            if not names:
                raise ModelError(f"The model endpoint {self.address} lists no models: name one in CALLBOARD_MODEL.")
            self.name = names[0]
        return self.name

    async def list_names(self) -> list[str]:
        """Return the ids of the endpoint's models. Raises `ModelError` and its subclasses."""
        try:
            deadline = asyncio.get_running_loop().time() + self._timeout_seconds
            async with asyncio.timeout_at(deadline):
                listed = read_models(await read_json(await self._send("GET", "models", deadline)))
        except _FAILURES as error:
            raise self._to_model_error(error) from error
        return [model["id"] for model in listed]

    async def describe(self) -> ModelDescription:
        """Return the endpoint's description of the model and its chat template, empty if it has none."""
        return await describe_model(self._client, self.name)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Yield the answer's deltas. There is always a `Finish`, whose reason is None if the endpoint gave none.

        A request is sent again once if its answer is cut off before the first delta, if `EndpointQuirks` can change the
        part that the endpoint refuses, and without the fields of earlier answers if it refuses their signatures. If
        nothing is learnt from a refusal, the known forms are tried one after another.
        An error about a call that the endpoint could not read is the finish reason `malformed_function_call`.

        Raises:
            ModelUnauthorized: Status 401 or 403.
            ModelRateLimited: Status 429.
            ModelRefused: Status 400, 413, 415 or 422.
            ModelTimeout: The endpoint did not answer in time.
            ModelUnreachable: The connection failed.
            ModelCutOff: The stream ended before the answer did.
            ModelError: Any other failure.
        """
        await self.find_name()
        quirks = self._quirks[self.name]
        known_of_tools = copy(quirks.tools)
        attempt = _Attempt(request)
        may_retry_cut_off = self._max_retries > 0
        is_begun = False
        while True:
            body = self._adapt(attempt)
            left_out = _tool_names(request.tools) - _tool_names(body.get("tools", ()))
            # Looked up now, because another request may change what is known.
            refused = {name: words for name, words in self.refused_tools.items() if name in left_out}
            try:
                async with aclosing(self._stream_once(body)) as deltas:
                    async for delta in deltas:
                        if refused:
                            yield ToolsRefused(refused)
                            refused = {}
                        is_begun = is_begun or not isinstance(delta, TokenUsage)
                        yield delta
            except _FAILURES as error:
                if isinstance(error, EndpointError) and _is_unreadable_call(error):
                    yield Finish("malformed_function_call", " ".join(self._hide_key(error.detail).split()))
                    return
                if isinstance(error, CutOff):
                    may_retry, may_retry_cut_off = may_retry_cut_off, False
                else:
                    may_retry = isinstance(error, EndpointError) and self._change(attempt, body, error)
                if is_begun or not may_retry:
                    # Nothing that was learnt of tools has helped.
                    quirks.tools = known_of_tools
                    raise self._to_model_error(attempt.refusal or error, request) from error
            else:
                quirks.accept(attempt.form)
                return

    def _adapt(self, attempt: "_Attempt") -> dict[str, Any]:
        return self._quirks[self.name].adapt(self._to_body(attempt.request), attempt.form)

    def _change(self, attempt: "_Attempt", body: dict[str, Any], error: EndpointError) -> bool:
        """Change the form of a request after an error for `body`, and return whether it is another one."""
        quirks = self._quirks[self.name]
        quirks.learn(body, error)
        if refuses_details(error):
            attempt.request = replace(attempt.request, messages=without_details(attempt.request.messages))
        if self._adapt(attempt) != body:
            return True
        if error.status not in (400, 422):
            return False
        if attempt.refusal is None:
            attempt.refusal, attempt.forms = error, quirks.find_forms(body, error)
        attempt.form = attempt.forms.pop(0) if attempt.forms else None
        return attempt.form is not None

    async def _stream_once(self, body: dict[str, Any]) -> AsyncGenerator[ModelDelta, None]:
        finish: Finish | None = None
        has_text = has_usage_last = False
        reader = ChunkReader()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_seconds
        async with asyncio.timeout_at(deadline):
            response = await self._send("POST", "chat/completions", deadline, body)
        tail_end: float | None = None
        try:
            async with aclosing(response), aclosing(read_chunks(response)) as chunks:
                while True:
                    # Some endpoints keep the connection open after the answer, without `[DONE]`:
                    # https://github.com/maximhq/bifrost/issues/6784
                    async with asyncio.timeout_at(tail_end):
                        chunk = await anext(chunks)
                    deltas = list(reader.read(chunk))
                    if deltas:
                        has_usage_last = all(isinstance(delta, TokenUsage) for delta in deltas)
                    for delta in deltas:
                        finish = delta if isinstance(delta, Finish) else finish
                        has_text = has_text or isinstance(delta, TextDelta | ToolCallDelta)
                        yield delta
                    if finish is not None and deltas:
                        # Open WebUI's API for Ollama sends `stop` before the answer:
                        # https://github.com/open-webui/open-webui/issues/23921
                        is_answered = has_text or finish.reason != "stop"
                        is_end = is_answered and any(isinstance(delta, Finish | TokenUsage) for delta in deltas)
                        tail_end = loop.time() + TAIL_SECONDS if is_end else None
        except StopAsyncIteration:
            pass
        except (CutOff, TimeoutError, httpx.TimeoutException) as error:
            # Some endpoints send a finish reason, or the usage of the whole answer, but no `[DONE]`.
            has_whole_usage = isinstance(error, CutOff) and has_text and has_usage_last
            if finish is None and not has_whole_usage:
                raise
        if finish is None:
            yield Finish(None)
        elif finish.reason not in KNOWN_REASONS:
            # The answer counts as complete.
            _log.warning("unknown_finish_reason", reason=finish.reason, model=self.name)

    async def aclose(self) -> None:
        """Close the connections that are kept open for reuse."""
        await self._client.aclose()

    def _to_body(self, request: ModelRequest) -> dict[str, Any]:
        """Return the request as the JSON body of OpenAI's API."""
        body: dict[str, Any] = {
            "model": self.name,
            "messages": [_join_text_parts(message) for message in request.messages],
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
        own_stops = () if self._quirks[self.name].refuses_stops else request.stops
        if stops := _merge_stops(body.pop("stop", None), own_stops):
            body["stop"] = stops
        return body

    async def _send(
        self, method: str, path: str, deadline: float, body: dict[str, Any] | None = None
    ) -> httpx.Response:
        """Send a request with retries, and return the response once its status has arrived.

        The caller closes it. Raises `EndpointError` for an unsuccessful status. An error from which
        `EndpointQuirks` learn is raised without a retry, because llama.cpp and SGLang answer 500 to requests that they
        always refuse. So is an error about a call of the model: the tool loop asks once more.
        """
        loop = asyncio.get_running_loop()
        retries = 0
        while True:
            try:
                response = await send(self._client, self._client.build_request(method, path, json=body))
            except httpx.TransportError:
                delay = find_retry_delay(retries, self._max_retries, None, deadline - loop.time())
                if delay is None:
                    raise
            else:
                if response.is_success:
                    return response
                error = await read_error(response)
                delay = find_retry_delay(retries, self._max_retries, response, deadline - loop.time())
                # An unreadable call comes first: the error quotes it, and nothing may be learnt from its text.
                if delay is None or _is_unreadable_call(error) or (body and self._is_refusal(body, error)):
                    raise error
            await asyncio.sleep(delay)
            retries += 1

    def _is_refusal(self, body: dict[str, Any], error: EndpointError) -> bool:
        """Return whether the endpoint would refuse the same request again, whatever its status says."""
        return refuses_pictures(error, body["messages"]) or self._quirks[self.name].learn(body, error)

    def _to_model_error(self, error: Exception, request: ModelRequest | None = None) -> ModelError:
        subject = f"The model endpoint {self.address}"
        match error:
            case EndpointError():
                return self._to_refusal_error(error, request or ModelRequest(()))
            case UnreadableAnswer():
                return ModelError(f"{subject} {self._hide_key(str(error))}. Check CALLBOARD_MODEL_BASE_URL.")
            case CutOff():
                return ModelCutOff(
                    f"{subject} ended its answer in the middle, without a finish reason. "
                    "The text so far is incomplete: ask again, and look at its log if it happens often."
                )
            case httpx.ConnectTimeout():
                return ModelTimeout(
                    f"{subject} did not accept a connection within {self._client.timeout.connect:g} s. "
                    "Check that it runs and that CALLBOARD_MODEL_BASE_URL is right."
                )
            case TimeoutError() | httpx.TimeoutException():
                return ModelTimeout(
                    f"{subject} did not answer within {self._timeout_seconds:g} s. "
                    "Try again, or set CALLBOARD_MODEL_BASE_URL to a faster endpoint."
                )
            case httpx.HTTPError():
                return ModelUnreachable(
                    f"{subject} cannot be reached or cut the connection ({self._hide_key(_root_cause_text(error))}). "
                    "Check that it runs and that CALLBOARD_MODEL_BASE_URL is right."
                )
            case _:
                return ModelError(
                    f"The request to the model endpoint {self.address} cannot be written as JSON "
                    f"({self._hide_key(str(error))[:DETAIL_CHARS]}): change the messages or options."
                )

    def _to_refusal_error(self, error: EndpointError, request: ModelRequest) -> ModelError:
        subject = f"The model endpoint {self.address}"
        status = error.status
        detail = self._quote(error.detail)
        code = upstream_code(error.body, detail)
        tools_advice = _TOOLS_ADVICE if request.tools and _REFUSES_TOOLS.search(detail) else ""
        has_blind_model = refuses_pictures(error, request.messages)
        if has_blind_model or status in REFUSAL_STATUSES or (status is None and code in (CONTEXT_TOO_LONG, FILTERED)):
            too_long = "Begin a new chat, or set CALLBOARD_HISTORY_TOKENS below the model's context length."
            otherwise = tools_advice or "Change the request: the same one is refused again."
            advice = too_long if code == CONTEXT_TOO_LONG else _PICTURES_ADVICE if has_blind_model else otherwise
            asked = "the request" if status is None else f"the request ({status})"
            return ModelRefused(f"{subject} refused {asked}: {detail}. {advice}", code)
        if status in (401, 403):
            return ModelUnauthorized(
                f"{subject} refused the key ({status}): {detail}. Set CALLBOARD_MODEL_API_KEY to a key that it accepts."
            )
        if status == 429:
            return ModelRateLimited(
                f"{subject} is over its limit (429): {detail}. "
                "Wait, or use another endpoint or key (CALLBOARD_MODEL_BASE_URL, CALLBOARD_MODEL_API_KEY)."
            )
        outcome = f"{subject} failed" if status is None else f"{subject} answered {status}"
        action = "Check CALLBOARD_MODEL_BASE_URL (often it ends in /v1)" if status == 404 else "Look at its log"
        advice = tools_advice or f"{action} and check that it serves CALLBOARD_MODEL ({self.name})."
        return ModelError(f"{outcome}: {detail}. {advice}")

    def _quote(self, detail: str) -> str:
        return " ".join(self._hide_key(detail).split())[:DETAIL_CHARS].rstrip(" .")

    def _hide_key(self, text: str) -> str:
        # Some endpoints quote the key that they refuse.
        return hide_key(text, self._secret)


@dataclass(slots=True)
class _Attempt:
    """The form in which a request is sent; changed until the endpoint accepts it.

    Attributes:
        form: A form that is tried, because the words of the refusal say nothing. `forms` come after it.
        refusal: The error before the first form that was tried. The errors after it may be about the forms.
    """

    request: ModelRequest
    form: Quirk | None = None
    forms: list[Quirk] = field(default_factory=list)
    refusal: EndpointError | None = None


def _tool_names(tools: Iterable[Mapping[str, Any]]) -> set[str]:
    return {tool["function"]["name"] for tool in tools}


def _is_unreadable_call(error: EndpointError) -> bool:
    """Return whether the endpoint could not read a call that the model wrote."""
    return bool(_CANNOT_READ_CALL.search(error.words))


def _join_text_parts(message: ChatDict) -> ChatDict:
    """Return the message with its content as one string if it is a list of text parts without other fields.

    DeepSeek and Groq refuse lists: https://github.com/QwenLM/qwen-code/pull/2320. Fields such as `cache_control` stay.
    """
    content = message.get("content")
    if isinstance(content, list) and all(part == {"type": "text", "text": part.get("text")} for part in content):
        return {**message, "content": content_text(content)}
    return message


def _merge_stops(given: object, own: Sequence[str]) -> list[str]:
    """Return the client's stop sequences, and as many of the format's own as fit.

    The format's stop sequences only save tokens: its parser also ignores the text after them.
    """
    client_stops = [given] if isinstance(given, str) else list(given) if isinstance(given, list) else []
    merged = list(dict.fromkeys([*client_stops, *own]))
    if left_out := merged[MAX_STOPS:]:
        too_many = [stop for stop in left_out if stop in client_stops]
        _log.log(logging.WARNING if too_many else logging.DEBUG, "stop_sequences_left_out", left_out=left_out)
    return merged[:MAX_STOPS]


def _root_cause_text(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__


def _make_client(base_url: httpx.URL, key: str, timeout_seconds: float) -> httpx.AsyncClient:
    if not re.fullmatch(r"[\x20-\x7e]*", key):
        # httpx would quote the key in its error message.
        raise ModelError("CALLBOARD_MODEL_API_KEY has a character that keys cannot have: copy the key again.")
    headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": f"callboard/{__version__}"}
    return httpx.AsyncClient(
        base_url=base_url.copy_with(query=None, fragment=None),
        params=base_url.params,
        headers=headers | ({"Authorization": f"Bearer {key}"} if key else {}),
        timeout=httpx.Timeout(timeout_seconds, connect=min(CONNECT_TIMEOUT_SECONDS, timeout_seconds)),
        limits=httpx.Limits(
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_IDLE_CONNECTIONS,
            # Shorter than uvicorn's 5 s: a request must not be sent while the endpoint closes the connection.
            keepalive_expiry=4.0,
        ),
        verify=tls_context(),
        event_hooks={"response": [bound_body]},
    )
