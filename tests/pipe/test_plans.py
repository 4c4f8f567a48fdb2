"""Plans of agents in Open WebUI's task panel, and as status lines where there is no panel."""

from typing import Any

import pytest

from callboard_protocol import Done, Event, Plan, PlanState, PlanStep, RunStart
from tests.pipe.loader import PIPE, provide_open_webui
from tests.pipe.scripted_server import ScriptedServer, frames, stream
from tests.pipe.test_rendering import drawn
from tests.pipe.test_restore import status_lines
from tests.pipe.test_stream import METADATA, a_pipe, answer

START = RunStart(run_id="r", agent="a")
NAMES = ("Look", "Read", "Write")


def plan(*states: PlanState) -> Plan:
    steps = zip(NAMES, states, strict=True)
    return Plan(steps=tuple(PlanStep(id="x", content=name, state=state) for name, state in steps))


def tasks(*states: str) -> list[dict[str, str]]:
    numbered = enumerate(zip(NAMES, states, strict=True), 1)
    return [{"id": str(number), "content": name, "status": state} for number, (name, state) in numbered]


FIRST = plan("in_progress", "pending", "pending")
LAST = plan("completed", "completed", "cancelled")


class Chats:
    """Open WebUI's chats as far as they keep tasks."""

    def __init__(self) -> None:
        self.saved: list[tuple[str, list[dict[str, str]]]] = []

    async def update_chat_tasks_by_id(self, chat_id: str, tasks: list[dict[str, str]]) -> None:
        self.saved.append((chat_id, tasks))


@pytest.fixture
def chats(monkeypatch: pytest.MonkeyPatch) -> Chats:
    chats = Chats()
    provide_open_webui(monkeypatch, {"models.chats": {"Chats": chats}})
    return chats


def panel(updates: list[dict[str, Any]]) -> list[Any]:
    """Return the tasks that the page showed, one list for each change."""
    events = [update["event"] for update in updates if "event" in update]
    return [event["data"]["tasks"] for event in events if event["type"] == "chat:message:tasks"]


async def updates_of(server: ScriptedServer, *events: Event, **changes: Any) -> list[dict[str, Any]]:
    server.on("POST", "runs", stream(frames(START, *events, Done())))
    return await answer(a_pipe(server.url), **changes)


async def test_plan_is_shown_in_the_panel_and_saved_with_the_chat(server: ScriptedServer, chats: Chats) -> None:
    updates = await updates_of(server, FIRST, FIRST, LAST)
    shown = [tasks("in_progress", "pending", "pending"), tasks("completed", "completed", "cancelled")]
    assert panel(updates) == shown
    assert chats.saved[-1] == (METADATA["chat_id"], shown[-1])
    assert status_lines(updates) == []


async def test_unfinished_plan_is_removed_at_the_end(server: ScriptedServer, chats: Chats) -> None:
    updates = await updates_of(server, FIRST)
    assert panel(updates) == [tasks("in_progress", "pending", "pending"), []]
    # An earlier process may have saved the plan, if the answer is restored.
    assert chats.saved[-1] == (METADATA["chat_id"], [])


@pytest.mark.parametrize("chat_id", ["temporary:s", "channel:c"])
async def test_plan_is_a_status_line_without_a_panel(server: ScriptedServer, chats: Chats, chat_id: str) -> None:
    metadata = METADATA | {"chat_id": chat_id}
    updates = await updates_of(server, plan("completed", "pending", "pending"), LAST, __metadata__=metadata)
    assert panel(updates) == []
    assert chats.saved == []
    assert status_lines(updates)[:2] == ["Plan: 1 of 3: Read", "Plan: 2 of 3"]


def test_malformed_steps_are_shown_as_pending_tasks_with_ids_of_their_own() -> None:
    steps = [{"id": "x", "content": "a\nb", "state": "started"}, {"id": "x", "state": 3}, "no step"]
    transcript = PIPE.Transcript(has_panel=True)
    transcript.apply({"type": "plan", "steps": steps})
    assert transcript.tasks == [
        {"id": "1", "content": "a b", "status": "pending"},
        {"id": "2", "content": "None", "status": "pending"},
    ]
    assert drawn({"type": "plan"}).tasks is None


def test_pipe_and_protocol_describe_a_plan_in_the_same_words() -> None:
    for given in (FIRST, LAST, plan("completed", "pending", "in_progress"), Plan(steps=())):
        shown = PIPE.make_tasks(given.model_dump(mode="json"))
        assert PIPE.describe_tasks(shown) == given.summary
