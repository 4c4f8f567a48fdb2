"""The routes of runs, waiting approvals and models, and the health checks.

`user_id` in the query names the user of the request. A run that was started for a user can be read by this user only:
for other users, and without `user_id`, the response is 404. A run that was started without a user can be read by every
user.
"""

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from callboard._version import __version__
from callboard.agents import AgentLike
from callboard.calls.approval import may_allow
from callboard.errors import RequestError, StorageError
from callboard.http.auth import get_caller_name
from callboard.http.body import read_body, read_past_answers
from callboard.http.query import PageQuery, read_query, read_user_id
from callboard.http.sse import RunStream
from callboard.http.state import get_server_state
from callboard.http.stored_routes import UNCACHED
from callboard.openwebui.requests import read_parameters
from callboard.runs import FollowedRun, Run
from callboard.storage.values import GivenAnswer
from callboard_protocol import InputAnswer, RunMessage, RunRequest
from callboard_protocol.events import PROTOCOL_VERSION


async def health(request: Request) -> Response:
    """Return `{"status": "ok", "version": …, "protocol": 1}`; 503 with a reason while the database is not writable."""
    body = {"status": "ok", "version": __version__, "protocol": PROTOCOL_VERSION}
    try:
        await get_server_state(request).store.check()
    except StorageError as error:
        return JSONResponse({**body, "status": "error", "reason": str(error)}, 503)
    return JSONResponse(body)


async def ready(request: Request) -> Response:
    """Return `{"status": "ready"}` while the server accepts runs; 503 while it shuts down. For load balancers."""
    if get_server_state(request).runs.is_closing:
        return JSONResponse({"status": "stopping"}, 503)
    return JSONResponse({"status": "ready"})


async def models(request: Request) -> Response:
    """Return the agents as OpenAI lists models, with `name`, `description` and, if set, `suggestions` and `icon`.

    Built-in agents that need a model are left out while no model is configured. If the user is verified, by the caller
    or by Open WebUI's signature, only agents that the user may use are listed.
    """
    state = get_server_state(request)
    access = state.runs.access
    user = state.user_verifier.find_verified_user(request)
    entries = [
        _describe(agent, state.started_at)
        for agent in state.registry.list_usable(state.services.model)
        if user is None or access.admits(agent.agent_id, user)
    ]
    return JSONResponse({"object": "list", "data": entries})


async def model(request: Request) -> Response:
    """Return one of the agents that `GET /v1/models` lists."""
    state = get_server_state(request)
    user = state.user_verifier.find_verified_user(request)
    access = state.runs.access
    agent = state.registry.get(
        request.path_params["agent_id"], lambda other: user is None or access.admits(other, user)
    )
    if user is not None:
        access.check(agent.agent_id, user)
    return JSONResponse(_describe(agent, state.started_at))


def _describe(agent: AgentLike, created: int) -> dict[str, Any]:
    # Agents of frameworks, and classes of other packages, may lack both attributes.
    optional = {"suggestions": list(getattr(agent, "suggestions", ())), "icon": getattr(agent, "icon", "")}
    return {
        "id": agent.agent_id,
        "object": "model",
        "created": created,
        "owned_by": "callboard",
        "name": agent.name,
        "description": agent.description,
        **{name: value for name, value in optional.items() if value},
    }


async def start_run(request: Request) -> Response:
    """Start a run (`callboard_protocol.RunRequest`), or attach to the run with its `run_id`; return its events."""
    state = get_server_state(request)
    with state.bodies.reserve() as reservation:
        body = await read_body(request, RunRequest, reservation)
        known = state.user_verifier.verify(body.user.id if body.user else None, request)
        body = body.model_copy(update={"user": known or body.user, "options": read_parameters(body.options)})
        run = await state.runs.start(
            await read_past_answers(body), caller=get_caller_name(request), on_start=reservation.hold_until_end_of
        )
    return RunStream(run, state.shutdown)


async def run_state(request: Request) -> Response:
    """Return the run's agent, chat and message, whether it has ended, whether a client listens to it, and its answers.

    A client that was restarted during an answer can see here whether another client already receives the answer, and
    in `answered` the ids of the questions that it must not ask again. `approved` has the ids of those questions whose
    answer allows a call.
    """
    run = await _find_run(request)
    answers = await get_server_state(request).runs.find_answers(run.run_id)
    state = {
        "run_id": run.run_id,
        "agent": run.identity.agent_id,
        "chat_id": run.identity.chat_id,
        "message_id": run.identity.message_id,
        "ended": run.ended,
        "listened_to": await run.is_listened_to(),
        "answered": sorted(answers),
        "approved": sorted(request_id for request_id, given in answers.items() if may_allow(given.value)),
    }
    return JSONResponse(state)


async def run_events(request: Request) -> Response:
    """Return the run's events after `Last-Event-ID` or `?after=N`; 410 if the log no longer has them."""
    run = await _find_run(request)
    after = _read_after(request)
    run.check(after)
    return RunStream(run, get_server_state(request).shutdown, after)


async def cancel_run(request: Request) -> Response:
    """Cancel a run; 202, also if it has already ended."""
    run = await _find_run(request)
    await run.cancel_for_client()
    return JSONResponse({"run_id": run.run_id, "status": "ended" if run.ended else "cancelling"}, 202)


async def answer_input(request: Request) -> Response:
    """Answer an `input_request`: `{"request_id": …, "value": …}`; 202, or 404 if no such question is open.

    `"value": null` ends the question without an answer. `"asked": false` says that the user could not be asked. The
    answer to a `tool_request` has a `callboard_protocol.ToolAnswer` as its value.
    """
    with get_server_state(request).bodies.reserve() as reservation:
        body = await read_body(request, InputAnswer, reservation)
    run = await _find_run(request)
    await run.answer(body.request_id, GivenAnswer(body.value, get_caller_name(request), asked=body.asked))
    return JSONResponse({"run_id": run.run_id, "request_id": body.request_id}, 202)


async def add_message(request: Request) -> Response:
    """Say something to a run while it works: `{"content": …}`; 202 means that its model reads it before the run ends.

    The model reads it before its next request, as a message of the user, and the event `user_message` follows. 409
    `run_ending` means that it comes too late: send it as the next turn. If the run fails, is cancelled, or its agent
    does not read messages, the event `unread_message` comes before the run's last event.
    """
    with get_server_state(request).bodies.reserve() as reservation:
        body = await read_body(request, RunMessage, reservation)
    run_id = request.path_params["run_id"]
    message_id = await get_server_state(request).runs.add_message(run_id, read_user_id(request), body.content)
    return JSONResponse({"run_id": run_id, "message_id": message_id}, 202)


class ApprovalsQuery(PageQuery):
    """The query of `GET /v1/approvals`."""

    chat_id: str | None = None


async def list_approvals(request: Request) -> Response:
    """Return a page of the user's calls that wait for approval, newest first: `{"approvals": […], "next_cursor": …}`.

    The query takes `limit` up to 200, `cursor`, the `next_cursor` of the previous page, and `chat_id`. Each call has
    the ids of its run and its question: `POST /v1/runs/{run_id}/input` with the `request_id` and the `value` true or
    false answers it. A server then continues the run.
    """
    query = read_query(request, ApprovalsQuery)
    store = get_server_state(request).store
    page = await store.waiting_approvals(query.user_id, query.limit, query.cursor, query.chat_id)
    approvals = [asdict(approval) for approval in page.items]
    return JSONResponse({"approvals": approvals, "next_cursor": page.next_cursor}, headers=UNCACHED)


async def run_file(request: Request) -> Response:
    """Return a tool's file that is too large for a frame; it is kept as long as the run's log.

    Browsers save it rather than show it, so that a file with scripts does not run as a page of this server.
    """
    run = await _find_run(request)
    file = await run.file(request.path_params["file_id"])
    headers = {"Content-Disposition": "attachment", **UNCACHED}
    return Response(file.content, media_type=file.content_type, headers=headers)


async def _find_run(request: Request) -> Run | FollowedRun:
    return await get_server_state(request).runs.find(request.path_params["run_id"], read_user_id(request))


def _read_after(request: Request) -> int:
    given = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if not (given.isascii() and given.isdigit() and len(given) < 16):
        raise RequestError(f"Last-Event-ID (or ?after=) must be the number of an event, not {given[:40]!r}")
    return int(given)


ROUTES = [
    Route("/health", health),
    Route("/ready", ready),
    Route("/v1/models", models),
    Route("/v1/models/{agent_id:path}", model),
    Route("/v1/runs", start_run, methods=["POST"]),
    Route("/v1/runs/{run_id}", run_state),
    Route("/v1/runs/{run_id}/events", run_events),
    Route("/v1/runs/{run_id}/cancel", cancel_run, methods=["POST"]),
    Route("/v1/runs/{run_id}/input", answer_input, methods=["POST"]),
    Route("/v1/runs/{run_id}/messages", add_message, methods=["POST"]),
    Route("/v1/runs/{run_id}/files/{file_id}", run_file),
    Route("/v1/approvals", list_approvals),
]
