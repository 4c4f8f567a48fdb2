"""The pages of agents: prompt, tools, missing settings, and "Try it", a small chat with the agent.

"Try it" works without scripts. It shows the same runs, stored chats and questions as the other pages. A run that was
started there continues until it ends, reaches its time limit or is stopped, even if the page is closed.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from secrets import token_hex
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callboard._inspect.page import is_part_request, read_state, redirect, show
from callboard._inspect.shown import ShownRun, show_stored
from callboard._inspect.watch import WatchedRun
from callboard.agents import Agent
from callboard.errors import RequestError, UnknownChat, UnknownInput, UnknownRun
from callboard.http import refuse_invalid
from callboard.runs import Run
from callboard.storage import GivenAnswer, Overview
from callboard_protocol import RunRequest

CHAT_PREFIX = "try-"
"""The prefix of the ids of chats that were started in "Try it", which continues only these chats."""
FIELD_PREFIX = "field:"
"""The prefix of the names of fields that belong to the form of a question."""
TURNS_SHOWN = 20
CALLS_SHOWN = 100
MAX_MESSAGE_CHARS = 100_000


async def agents(request: Request) -> Response:
    """Show all agents, and the reasons why other agents are missing."""
    _, state, _ = read_state(request)
    listed = [(agent, len(agent.tools) if isinstance(agent, Agent) else None) for agent in state.registry]
    unavailable = state.registry.unavailable
    redact = state.services.redaction
    return show(request, "agents.html", title="Agents", agents=listed, unavailable=unavailable, redact=redact)


async def agent(request: Request) -> Response:
    """Show an agent, and of an `Agent` also its current prompt, its tools, its skills and their settings."""
    _, state, _ = read_state(request)
    found = state.registry.get(request.query_params.get("id", ""))
    return show(
        request,
        "agent.html",
        title=found.name,
        agent=found,
        is_own=isinstance(found, Agent),
        server_model=state.services.model.name,
        redact=state.services.redaction.value,
    )


async def try_it(request: Request) -> Response:
    """Show the chat of "Try it" with an agent."""
    _, state, _ = read_state(request)
    found = state.registry.get(request.query_params.get("agent", ""))
    chat_id = request.query_params.get("chat") or ""
    turns = await _read_chat(request, chat_id) if chat_id else []
    is_live = any(turn.is_live for turn in turns)
    template = "try_turns.html" if is_part_request(request) else "try.html"
    return show(
        request,
        template,
        title=f"Try {found.name}",
        agent=found,
        chat_id=chat_id,
        turns=turns,
        is_live=is_live,
        is_for_some=not state.runs.access.admits(found.agent_id, None),
        said=_read_role_and_groups(request.query_params),
    )


async def send(request: Request) -> Response:
    """Send a message to an agent, in a new chat or as the next turn of a chat."""
    visit, state, _ = read_state(request)
    agent_id = visit.form.get("agent", "")
    message = visit.form.get("message", "").strip()
    chat_id = visit.form.get("chat") or f"{CHAT_PREFIX}{token_hex(8)}"
    _check_chat(chat_id)
    visit.check_may_act_for(visit.user)
    if not 0 < len(message) <= MAX_MESSAGE_CHARS:
        raise RequestError("write a message first")
    body: dict[str, Any] = {
        "agent": agent_id,
        "chat_id": chat_id,
        "message_id": token_hex(8),
        "messages": [*await _list_messages(state.store.overview(visit.user), chat_id), _make_message("user", message)],
    }
    said = _read_role_and_groups(visit.form)
    if visit.user is not None:
        groups = [name.strip() for name in said["groups"].split(",")]
        body["user"] = {"id": visit.user, "role": said["role"] or "user", "groups": list(filter(None, groups))}
    with refuse_invalid():
        asked = RunRequest.model_validate(body)
    run = await state.runs.start(asked, caller=visit.caller)
    if isinstance(run, Run):
        listening = asyncio.create_task(_keep_listening(run), name=f"try {run.run_id}")
        open_trials: set[asyncio.Task[None]] = request.app.state.open_trials
        open_trials.add(listening)
        listening.add_done_callback(open_trials.discard)
    return redirect(visit.link("try", agent=agent_id, chat=chat_id, **said))


async def answer(request: Request) -> Response:
    """Answer a question of a run of "Try it"."""
    visit, state, _ = read_state(request)
    chat_id = visit.form.get("chat", "")
    _check_chat(chat_id)
    run = await state.runs.find(visit.form.get("run", ""), visit.user)
    if run.identity.chat_id != chat_id:
        raise UnknownRun("there is no such run in this chat")
    visit.check_may_act_for(run.identity.user_id)
    value: object = visit.form.get("value", "")
    kind = visit.form.get("kind")
    if kind in ("confirmation", "form"):
        # Only the buttons "Allow" and "Answer" send "yes".
        value = value == "yes"
    if kind == "form" and value:
        named = [name for name in visit.form if name.startswith(FIELD_PREFIX)]
        value = {name.removeprefix(FIELD_PREFIX): visit.form[name] for name in named}
    # The question may have been answered elsewhere or have timed out. The page shows the outcome.
    with suppress(UnknownInput):
        given = GivenAnswer(value, visit.caller, in_inspector=True)
        await run.answer(visit.form.get("question", ""), given)
    return redirect(visit.link("try", agent=run.identity.agent_id, chat=chat_id, **_read_role_and_groups(visit.form)))


async def _keep_listening(run: Run) -> None:
    """Listen until the run ends, because a run without a listener is cancelled."""
    with run.listening():
        await run.wait()


async def _read_chat(request: Request, chat_id: str) -> list[ShownRun]:
    """Return the newest turns of a chat, oldest first, including a turn that has begun but is not stored yet."""
    visit, state, watch = read_state(request)
    _check_chat(chat_id)
    overview = state.store.overview(visit.user)
    watched = {one.run.run_id: one for one in watch if one.run.chat_id == chat_id and one.run.user_id == visit.user}
    try:
        turns = (await overview.turns(chat_id, TURNS_SHOWN)).turns
    except UnknownChat:
        turns = ()
    shown = []
    for turn in reversed(turns):
        if one := watched.pop(turn.run_id, None):
            shown.append(_show_newest_calls(one, turn.question))
        else:
            page = await overview.calls_of_turn(chat_id, turn.run_id, CALLS_SHOWN)
            shown.append(show_stored(turn, page.calls, page.next_cursor))
    return [*shown, *map(_show_newest_calls, watched.values())]


def _show_newest_calls(watched: WatchedRun, question: str = "") -> ShownRun:
    """Return a watched run with its newest calls. The page of the run shows all calls."""
    shown = watched.show(question)
    return replace(shown, calls=shown.calls[-CALLS_SHOWN:])


async def _list_messages(overview: Overview, chat_id: str) -> list[dict[str, Any]]:
    """Return the messages of a chat as a client sends them. From the id of an answer, the server finds its calls."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        try:
            page = await overview.turns(chat_id, TURNS_SHOWN, cursor)
        except UnknownChat:
            return []
        for turn in page.turns:
            answer = {**_make_message("assistant", turn.answer), "id": turn.message_id}
            found += [answer, _make_message("user", turn.question)]
        cursor = page.next_cursor
        if cursor is None:
            return found[::-1]


def _read_role_and_groups(given: Mapping[str, str]) -> dict[str, str]:
    """Return the role and groups that were typed into the form of "Try it". They are not stored."""
    return {name: given.get(name, "").strip() for name in ("role", "groups")}


def _make_message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _check_chat(chat_id: str) -> None:
    if not chat_id.startswith(CHAT_PREFIX):
        raise RequestError("this page continues only chats that were started on it")


ROUTES = [
    Route("/agents", agents),
    Route("/agent", agent),
    Route("/try", try_it),
    Route("/try/send", send, methods=["POST"]),
    Route("/try/answer", answer, methods=["POST"]),
]
