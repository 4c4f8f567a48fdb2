"""The first page, with running runs, waiting approvals and the last answers; the Stop button of all pages."""

from contextlib import suppress
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callboard._inspect.page import find_run, is_part_request, is_running_here, read_state, redirect, show, show_part
from callboard._inspect.shown import list_elsewhere, show_stored
from callboard._inspect.visit import read_visit
from callboard.errors import UnknownInput
from callboard.storage.values import GivenAnswer

ANSWERS_SHOWN = 100
TASKS_SHOWN = 50
APPROVALS_SHOWN = 100


async def now(request: Request) -> Response:
    """Show the running runs, the waiting approvals, and the last answers."""
    find = partial(_find_now, request)
    if is_part_request(request):
        return await show_part(request, "now_rows.html", find)
    return show(request, "now.html", **await find())


async def _find_now(request: Request) -> dict[str, object]:
    visit, state, watch = read_state(request)
    overview = state.store.overview(visit.user_filter)
    turns = {turn.run_id: turn for turn in await overview.newest_turns(ANSWERS_SHOWN)}
    watched = [one for one in watch if visit.can_see(one.run.user_id)]
    live = [one.show() for one in watched if is_running_here(state, one)]
    ended = {one.run.run_id: one for one in reversed(watched) if one.ended_at is not None}
    here = {run.run_id for run in live} | ended.keys()
    open_runs = [run for run in await overview.open_runs() if run.run_id not in here]
    elsewhere = [list_elsewhere(run, turns.get(run.run_id)) for run in open_runs]
    running = {run.run_id for run in live} | {run.run_id for run in open_runs}
    # An ended run that began before the oldest listed turn may be stored, but be too old for the list.
    oldest = min((turn.began_at for turn in turns.values()), default=0) if len(turns) == ANSWERS_SHOWN else 0
    unstored = [one.show() for run_id, one in ended.items() if run_id not in turns and one.began_at >= oldest]
    answers = [show_stored(turn, turn.failures) for run_id, turn in turns.items() if run_id not in running]
    answers = sorted([*answers, *unstored], key=lambda run: -run.began_at)
    return {
        "title": "Now",
        "waiting": await state.store.waiting_approvals(visit.user_filter, APPROVALS_SHOWN),
        "runs": [run for run in [*live, *elsewhere] if run.task is None],
        "answers": [run for run in answers if run.task is None][:ANSWERS_SHOWN],
        "tasks": [run for run in [*live, *answers] if run.task is not None][:TASKS_SHOWN],
    }


async def stop(request: Request) -> Response:
    """Stop a run. The query names the run and its user."""
    visit = read_visit(request)
    run = await find_run(request)
    visit.check_may_act_for(run.identity.user_id)
    await run.cancel_for_client()
    return redirect(visit.link("run", id=run.run_id, chat=run.identity.chat_id))


async def say(request: Request) -> Response:
    """Send a message to a run, as its user. The query names the run and its user."""
    visit, state, _ = read_state(request)
    run = await find_run(request)
    visit.check_may_act_for(run.identity.user_id)
    if (content := visit.form.get("content", "")).strip():
        await state.runs.add_message(run.run_id, run.identity.user_id, content)
    return redirect(visit.link("run", id=run.run_id, chat=run.identity.chat_id))


async def approve(request: Request) -> Response:
    """Approve or refuse a waiting call. The query names its run, the run's user, the question and the answer."""
    visit = read_visit(request)
    query = request.query_params
    run = await find_run(request)
    visit.check_may_act_for(run.identity.user_id)
    # The question may have been answered elsewhere. The page then no longer lists it.
    with suppress(UnknownInput):
        given = GivenAnswer(query.get("value") == "yes", visit.caller, in_inspector=True)
        await run.answer(query.get("question") or "", given)
    return redirect(visit.link())


ROUTES = [
    Route("/", now),
    Route("/stop", stop, methods=["POST"]),
    Route("/say", say, methods=["POST"]),
    Route("/approve", approve, methods=["POST"]),
]
