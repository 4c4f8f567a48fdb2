"""The routes of OpenAI's API, except the list of models."""

import time
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from callboard._openai.answer import OpenAIAnswer
from callboard._openai.chat_completions import ChatAnswer, ChatBody
from callboard._openai.client_functions import format_ignored_header
from callboard._openai.request import (
    ClientContext,
    RequestBody,
    ToolActivity,
    read_client_context,
    read_user,
)
from callboard._openai.response_answer import ResponseAnswer
from callboard._openai.response_request import ResponseBody
from callboard._openai.stored_responses import load_response
from callboard._openai.streams import RunAnswer, collect_answer, stream_answer
from callboard.errors import CallboardError, RequestError, RunConflict, UnknownResponse
from callboard.http import get_server_state
from callboard.http.auth import get_caller_name
from callboard.http.body import BodyReservation, read_body, read_past_answers, refuse_invalid
from callboard.http.errors import error_response
from callboard.openwebui.requests import has_own_header
from callboard.runs import Run
from callboard.storage.sql.responses import Responses
from callboard.threads import REQUESTS
from callboard_protocol import User

Endpoint = Callable[[Request], Awaitable[Response]]


async def chat_completions(request: Request) -> Response:
    """Answer like a model, with an agent whose tools run on this server.

    `"callboard": {"tool_activity": …}` says how calls are shown: `none`, `status` or `details`.
    """
    with get_server_state(request).bodies.reserve() as reservation:
        body = await read_body(request, ChatBody, reservation)
        client = read_client_context(body.callboard, request.headers)
        activity = _read_activity(client, "none", "status", "details")
        is_drawn = has_own_header(request.headers)
        user = read_user(body.user, request, get_server_state(request).user_verifier)
        run = await _start(request, body, client, user, reservation, holds_blocks=is_drawn or activity == "details")
    answer = ChatAnswer(run.run_id, body, int(time.time()), activity, is_drawn=is_drawn)
    return await _respond(request, run, answer, body)


async def responses(request: Request) -> Response:
    """Answer like a model, with an `mcp_call` item for each call of the agent.

    `"callboard": {"tool_activity": …}` is `mcp`, `none` for text only, or `items` for `function_call` and
    `function_call_output`. `items` is the default for Open WebUI; other clients would try to run such calls.
    """
    with get_server_state(request).bodies.reserve() as reservation:
        body = await read_body(request, ResponseBody, reservation)
        client = read_client_context(body.callboard, request.headers)
        from_open_webui = has_own_header(request.headers)
        shape: tuple[ToolActivity, ToolActivity] = ("items", "mcp") if from_open_webui else ("mcp", "items")
        activity = _read_activity(client, *shape, "none")
        # Open WebUI refers to a response only with ENABLE_RESPONSES_API_STATEFUL, which is off by default, and its
        # temporary chats must not be stored.
        if client.task or (from_open_webui and body.store is None):
            body = body.model_copy(update={"store": False})
        user = read_user(body.user, request, get_server_state(request).user_verifier)
        kept = get_server_state(request).store.responses(user.id if user else None)
        body = await body.with_kept_items(kept)
        run = await _start(request, body, client, user, reservation, holds_blocks=from_open_webui)
    answer = ResponseAnswer(run.run_id, body, int(time.time()), activity, is_drawn=from_open_webui)
    return await _respond(request, run, answer, body, kept if body.is_stored else None)


async def response(request: Request) -> Response:
    """Return a stored response. `user` in the query must be the user of its request."""
    state = get_server_state(request)
    if request.query_params.get("stream", "false") not in ("false", "0"):
        raise RequestError("stream is not supported here: leave it out to get the whole response")
    response_id = request.path_params["response_id"]
    user = read_user(request.query_params.get("user"), request, state.user_verifier)
    kept = await load_response(response_id, state.store.responses(user.id if user else None))
    if kept is None:
        raise UnknownResponse(
            f"there is no response {response_id!r} of this user: it was not stored (store: false), has not ended yet, "
            "or is older than CALLBOARD_RESPONSE_RETENTION_DAYS"
        )
    return JSONResponse(kept)


def _read_activity(client: ClientContext, default: ToolActivity, *others: ToolActivity) -> ToolActivity:
    activity = client.tool_activity or default
    if activity not in (default, *others):
        raise RequestError(
            f"tool_activity {activity!r} is not supported by this route: use {' or '.join((default, *others))}"
        )
    return activity


async def _start(
    request: Request,
    body: RequestBody,
    client: ClientContext,
    user: User | None,
    reservation: BodyReservation,
    *,
    holds_blocks: bool,
) -> Run:
    """Start the run. `holds_blocks`: earlier answers have blocks of calls, and tags in the model's text are escaped."""
    with refuse_invalid():
        run_request = await REQUESTS.run(partial(body.build_run, client, user))
    run = await get_server_state(request).runs.start(
        await read_past_answers(run_request, holds_blocks=holds_blocks),
        caller=get_caller_name(request),
        reference=body.reference,
        on_start=reservation.hold_until_end_of,
    )
    if not isinstance(run, Run):
        # Its begin was committed, but the connection to the database was lost, and another server took the run over.
        raise RunConflict(f"run {run.run_id!r} exists already: ask again")
    return run


async def _respond(
    request: Request, run: Run, answer: OpenAIAnswer, body: RequestBody, responses: Responses | None = None
) -> Response:
    respond = stream_answer if body.stream else collect_answer
    redaction = get_server_state(request).services.redaction
    response = await respond(request, RunAnswer(run, answer, redaction, responses))
    response.headers.update(format_ignored_header([*run.ignored, *body.offer.ignored]))
    return response


def _with_openais_errors(endpoint: Endpoint) -> Endpoint:
    @wraps(endpoint)
    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except CallboardError as error:
            # OpenAI answers 400 to an invalid request, and its clients choose their exception by that.
            return error_response(error, HTTPStatus.BAD_REQUEST if type(error) is RequestError else None)

    return answer


ROUTES = [
    Route("/v1/chat/completions", _with_openais_errors(chat_completions), methods=["POST"]),
    Route("/v1/responses", _with_openais_errors(responses), methods=["POST"]),
    Route("/v1/responses/{response_id}", _with_openais_errors(response)),
]
