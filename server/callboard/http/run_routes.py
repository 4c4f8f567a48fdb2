"""The routes of runs, models and health."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from callboard.errors import RequestError, StorageError
from callboard.http.body import read_body
from callboard.http.past_answers import translate
from callboard.http.sse import RunStream
from callboard.http.state import server_state
from callboard.version import __version__
from callboard_protocol import PROTOCOL_VERSION, InputAnswer, RunRequest


async def health(request: Request) -> Response:
    """Whether the server can do its work."""
    body = {"status": "ok", "version": __version__, "protocol": PROTOCOL_VERSION}
    try:
        await server_state(request).store.check()
    except StorageError as error:
        return JSONResponse({**body, "status": "error", "reason": str(error)}, 503)
    return JSONResponse(body)


async def models(request: Request) -> Response:
    """The agents, as OpenAI lists models."""
    state = server_state(request)
    entries = [
        {
            "id": agent.agent_id,
            "object": "model",
            "created": state.started_at,
            "owned_by": "callboard",
            "name": agent.name,
            "description": agent.description,
        }
        for agent in state.registry
    ]
    return JSONResponse({"object": "list", "data": entries})


async def start_run(request: Request) -> Response:
    """Start a run, or attach to the one of that id; answers with its events."""
    state = server_state(request)
    body = await read_body(request, RunRequest, state.max_request_bytes)
    told = body.model_copy(update={"messages": translate(body.messages)})
    return RunStream(await state.runs.start(told))


async def run_events(request: Request) -> Response:
    """The run's events again, from the one after `Last-Event-ID` or `?after=N`."""
    run = server_state(request).runs.get(request.path_params["run_id"])
    after = _after(request)
    run.log.check(after)
    return RunStream(run, after)


async def cancel_run(request: Request) -> Response:
    """End a run; nothing more happens where it has ended already."""
    run = server_state(request).runs.get(request.path_params["run_id"])
    run.cancel()
    return JSONResponse({"run_id": run.run_id, "status": "ended" if run.ended else "cancelling"}, 202)


async def answer_input(request: Request) -> Response:
    """Answer a question that the run asks its user."""
    state = server_state(request)
    body = await read_body(request, InputAnswer, state.max_request_bytes)
    run = state.runs.get(request.path_params["run_id"])
    run.inputs.answer(body.request_id, body.value)
    return JSONResponse({"run_id": run.run_id, "request_id": body.request_id}, 202)


async def run_file(request: Request) -> Response:
    """A file of one of the run's tool calls. It is nobody's page: a browser saves it."""
    run = server_state(request).runs.get(request.path_params["run_id"])
    file = run.files.get(request.path_params["file_id"])
    return Response(file.content, media_type=file.content_type, headers={"Content-Disposition": "attachment"})


def _after(request: Request) -> int:
    given = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if not (given.isascii() and given.isdigit() and len(given) < 16):
        raise RequestError(f"Last-Event-ID (or ?after=) must be the number of an event, not {given[:40]!r}")
    return int(given)


ROUTES = [
    Route("/health", health),
    Route("/v1/models", models),
    Route("/v1/runs", start_run, methods=["POST"]),
    Route("/v1/runs/{run_id}/events", run_events),
    Route("/v1/runs/{run_id}/cancel", cancel_run, methods=["POST"]),
    Route("/v1/runs/{run_id}/input", answer_input, methods=["POST"]),
    Route("/v1/runs/{run_id}/files/{file_id}", run_file),
]
