"""`callboard chat`, as a process in a real pseudo terminal or between pipes, against a real server."""

import asyncio
import base64
import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from callboard.agents import AgentLike, RunContext
from callboard.http import sse
from callboard_protocol import (
    Done,
    Event,
    InputRequest,
    Message,
    Plan,
    PlanStep,
    Reasoning,
    Rewind,
    Source,
    Status,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)
from examples.demo import demo_agent
from tests.cli.terminal import Terminal, in_pipes, in_terminal
from tests.faults.balancer import Balancer
from tests.serving import Script, ScriptedAgent, Service, serving

TOOL = "paint"


def url(service: Service) -> str:
    return str(service.client.base_url)


def started(call_id: str, name: str = TOOL, **arguments: Any) -> ToolCallStart:
    return ToolCallStart(tool_call_id=call_id, tool_name=name, tool_args=arguments)


def step(call_id: str, message: str, progress: float | None = None) -> ToolStatus:
    return ToolStatus(tool_call_id=call_id, data=ToolStatusData(status="busy", message=message, progress=progress))


def completed(call_id: str, result: str, name: str = TOOL) -> ToolCallComplete:
    return ToolCallComplete(tool_call_id=call_id, tool_name=name, result=result)


def says(*events: Event) -> ScriptedAgent:
    async def script(_: RunContext) -> AsyncIterator[Event]:
        for event in events:
            yield event

    return ScriptedAgent(script)


class Steps:
    """A script that waits before each group of events until the test lets it go on."""

    def __init__(self, *groups: list[Event]) -> None:
        self._groups = groups
        self._let_go = asyncio.Semaphore(0)

    def go_on(self) -> None:
        self._let_go.release()

    @property
    def agent(self) -> ScriptedAgent:
        async def script(_: RunContext) -> AsyncIterator[Event]:
            for group in self._groups:
                await self._let_go.acquire()
                for event in group:
                    yield event

        return ScriptedAgent(script)


@asynccontextmanager
async def asked(folder: Path, agent: AgentLike, *words: str, **options: Any) -> AsyncIterator[Terminal]:
    """A server with the agent, and a terminal in which the words are asked."""
    async with (
        serving(folder, agent) as service,
        in_terminal(folder, "chat", agent.agent_id, *words, "--url", url(service), **options) as terminal,
    ):
        yield terminal


# ------------------------------------------------------------------------------------------------- drawn, as it comes


async def test_text_is_shown_before_the_answer_is_complete(tmp_path: Path) -> None:
    steps = Steps([Message(content="The curtain ")], [Message(content="rises.")], [])
    async with asked(tmp_path, steps.agent, "hi") as terminal:
        steps.go_on()
        await terminal.shows("The curtain")
        assert "rises" not in terminal.text
        steps.go_on()
        await terminal.shows("The curtain rises.")
        steps.go_on()
        assert await terminal.ends() == 0
        # The last drawing is not replaced if it is also the end.
        assert terminal.text.count("The curtain rises.") == 1


async def test_a_card_is_changed_in_place_while_its_call_runs(tmp_path: Path) -> None:
    steps = Steps([started("a", what="a stage")], [step("a", "Sketching", 40)], [completed("a", "A picture.")])
    async with asked(tmp_path, steps.agent, "hi") as terminal:
        steps.go_on()
        await terminal.shows('paint  what="a stage"', "under 1 s")
        steps.go_on()
        await terminal.shows("40% Sketching")
        before = len(terminal.raw)
        # Its spinner turns though nothing arrives.
        await terminal.until(lambda: len(terminal.raw) > before + 200)
        steps.go_on()
        assert await terminal.ends() == 0
        assert "✓ paint" in terminal.text
        assert "A picture." in terminal.text
        assert terminal.text.count("paint") == 1
        assert "Sketching" not in terminal.text


async def test_the_newest_plan_is_shown_until_the_answer_has_ended(tmp_path: Path) -> None:
    look = PlanStep(id="1", content="Look", state="in_progress")
    write = PlanStep(id="2", content="Write", state="in_progress")
    steps = Steps(
        [Plan(steps=(look,)), started("a")],
        [completed("a", "It is wet."), Plan(steps=(look | {"state": "completed"}, write))],
        [Message(content="Done.")],
    )
    async with asked(tmp_path, steps.agent, "hi") as terminal:
        steps.go_on()
        await terminal.shows("Plan: 0 of 1: Look")
        steps.go_on()
        await terminal.shows("Plan: 1 of 2: Write")
        assert terminal.text.count("Plan") == 1
        steps.go_on()
        assert await terminal.ends() == 0
        assert "Plan" not in terminal.text


async def test_parallel_calls_are_printed_in_the_order_in_which_they_end(tmp_path: Path) -> None:
    steps = Steps(
        [started("a", "first"), started("b", "second")],
        [completed("b", "two", "second")],
        [completed("a", "one", "first")],
    )
    async with asked(tmp_path, steps.agent, "hi") as terminal:
        steps.go_on()
        await terminal.shows("first", "second")
        steps.go_on()
        await terminal.shows("✓ second", "two")
        assert "✓ first" not in terminal.text
        steps.go_on()
        assert await terminal.ends() == 0
        shown = [row for row in terminal.text.splitlines() if row.strip()]
        assert [row.split()[-1] for row in shown[:4]] == ["second", "two", "first", "one"]


async def test_more_calls_than_rows_are_all_printed_at_the_end(tmp_path: Path) -> None:
    names = [f"tool_{number:02d}" for number in range(30)]
    steps = Steps([started(name, name) for name in names], [completed(name, "fine", name) for name in names])
    async with asked(tmp_path, steps.agent, "hi", lines=12) as terminal:
        steps.go_on()
        await terminal.shows("tool_00", "...")
        steps.go_on()
        assert await terminal.ends() == 0
        assert re.findall(r"✓ (tool_\d+)", terminal.text) == names
        assert "..." not in terminal.text


async def test_a_long_text_is_complete_and_can_be_scrolled_while_it_is_streamed(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(200)]
    steps = Steps([Message(content=f"{line}\n") for line in lines], [Message(content="the end")])
    async with asked(tmp_path, steps.agent, "hi") as terminal:
        steps.go_on()
        await terminal.shows("line 199")
        assert terminal.text.splitlines()[:200] == lines
        steps.go_on()
        assert await terminal.ends() == 0
        assert terminal.text.splitlines()[:201] == [*lines, "the end"]


async def test_reasoning_is_dim_and_sources_and_files_are_named(tmp_path: Path) -> None:
    picture = {"type": "image", "url": "https://example.org/dusk.png", "name": "dusk.png", "content_type": "image/png"}
    agent = says(
        Reasoning(content="Let me see."),
        started("a"),
        ToolCallComplete(tool_call_id="a", tool_name=TOOL, result="done", files=(picture,)),
        Source(
            source={"name": "The Globe", "url": "https://globe.example"},
            document=("It burned down.",),
            metadata=({"source": "https://globe.example", "name": "The Globe", "source_number": 1},),
        ),
        Message(content="It burned down [source1]."),
    )
    async with asked(tmp_path, agent, "hi") as terminal:
        assert await terminal.ends() == 0
        assert b"\x1b[2mLet me see." in terminal.raw
        assert "⇩ dusk.png (image/png) https://example.org/dusk.png" in terminal.text
        assert "[source1] The Globe https://globe.example" in terminal.text


PICTURE = b"\x89PNG" + bytes(range(256)) * 400
FILES = (
    {"type": "image", "url": f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}", "name": "../dusk.png"},
    {"type": "file", "url": "data:text/csv,a%2Cb", "name": "sums.csv"},
    {"type": "image", "url": "data:image/gif;base64,R0lGODlhAQABAAAAACw="},
    {"type": "file", "url": "https://example.org/far.pdf", "name": "far.pdf"},
)
PAINTS = says(started("a"), ToolCallComplete(tool_call_id="a", tool_name=TOOL, result="done", files=FILES))


async def test_the_line_about_a_file_has_type_size_and_address(tmp_path: Path) -> None:
    async with serving(tmp_path, PAINTS) as service:
        told = await in_pipes(tmp_path, "chat", "scripted", "hi", "--url", url(service))
        dusk, sums, tiny, far = [line.strip() for line in told.beside.splitlines() if "⇩" in line]
        assert dusk.startswith(f"⇩ ../dusk.png (image/png, 102.4 kB) {url(service)}/v1/runs/")
        assert (await service.client.get(dusk.rpartition(" ")[2])).content == PICTURE
        assert sums.startswith(f"⇩ sums.csv (text/csv, 3 bytes) {url(service)}/v1/runs/")
        assert tiny == "⇩ file (image/gif, 14 bytes)"
        assert far == "⇩ far.pdf (file) https://example.org/far.pdf"
        assert not (tmp_path / "dusk.png").exists()


async def test_files_are_saved_in_the_given_folder_without_overwriting_others(tmp_path: Path) -> None:
    folder = tmp_path / "kept" / "here"
    folder.mkdir(parents=True)
    (folder / "sums.csv").symlink_to(tmp_path / "elsewhere")
    async with serving(tmp_path, PAINTS) as service:
        common = ("chat", "scripted", "hi", "--url", url(service), "--files", str(folder))
        for options in ((), ("--json",)):
            told = await in_pipes(tmp_path, *common, *options)
            assert told.exit_code == 0
            assert f"⇩ {folder}/dusk" in told.beside
    kept = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert kept == {
        "dusk.png": PICTURE,
        "dusk-2.png": PICTURE,
        "sums-2.csv": b"a,b",
        "sums-3.csv": b"a,b",
        **dict.fromkeys(("file.gif", "file-2.gif"), base64.b64decode("R0lGODlhAQABAAAAACw=")),
    }
    assert not (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "kept" / "dusk.png").exists()


@pytest.mark.parametrize("given", [[], ["--verbose"]])
async def test_verbose_shows_whole_arguments_steps_and_result(tmp_path: Path, given: list[str]) -> None:
    result = "\n".join(f"row {number}" for number in range(50))
    agent = says(started("a", what="x" * 200), step("a", "Sketching"), step("a", "Painting"), completed("a", result))
    async with asked(tmp_path, agent, "hi", *given) as terminal:
        assert await terminal.ends() == 0
        is_whole = terminal.text.count("x") >= 200 and "row 49" in terminal.text and "Sketching" in terminal.text
        assert is_whole == bool(given)


async def test_rewind_removes_the_withdrawn_text(tmp_path: Path) -> None:
    steps = Steps(
        [started("a"), completed("a", "kept"), Message(content="A wrong word.")],
        [Rewind(), Message(content="The right one.")],
    )
    async with asked(tmp_path, steps.agent, "hi") as terminal:
        steps.go_on()
        await terminal.shows("A wrong word.")
        steps.go_on()
        assert await terminal.ends() == 0
        assert "wrong" not in terminal.text
        assert "kept" in terminal.text
        assert "The right one." in terminal.text


async def test_rewind_of_text_that_has_scrolled_away_prints_a_notice(tmp_path: Path) -> None:
    wrong = Message(content="\n".join(f"wrong {number}" for number in range(60)))
    steps = Steps([wrong], [Rewind(), Message(content="The right one.")])
    async with asked(tmp_path, steps.agent, "hi") as terminal:
        steps.go_on()
        await terminal.shows("wrong 59")
        steps.go_on()
        assert await terminal.ends() == 0
        assert "The answer starts again" in terminal.text
        assert "wrong 59" not in terminal.text
        assert terminal.text.index("The answer starts again") < terminal.text.index("The right one.")


async def test_no_color_in_the_environment_removes_colours(tmp_path: Path) -> None:
    agent = says(Reasoning(content="Hm."), started("a"), completed("a", "fine"), Message(content="Well."))
    async with serving(tmp_path, agent) as service:
        for variables, has_colour in (({"NO_COLOR": "1"}, False), ({}, True)):
            arguments = ("chat", "scripted", "hi", "--url", url(service))
            async with in_terminal(tmp_path, *arguments, variables=variables) as terminal:
                assert await terminal.ends() == 0
                assert bool(re.search(rb"\x1b\[3\dm", terminal.raw)) == has_colour


async def test_a_dumb_terminal_gets_plain_lines_and_its_questions_are_asked(tmp_path: Path) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content="Look.")
        yield started("a")
        yield step("a", "Busy")
        yield completed("a", "fine")
        name = await context.ask(InputRequest(request_id="name", kind="input", title="Your name?"))
        word = await context.ask(InputRequest(request_id="word", kind="password", title="The word?"))
        yield Message(content=f"{name!r} {word!r}")

    async with asked(tmp_path, ScriptedAgent(script), "hi", variables={"TERM": "dumb"}) as terminal:
        await terminal.shows("Your name?", "\n  >")
        terminal.types("Celia\n")
        assert await terminal.ends() == 0
        assert b"\x1b" not in terminal.raw
        lines = [line for line in terminal.text.splitlines() if line]
        assert lines[:4] == ["Look.", "→ paint", "✓ paint", "  under 1 s  fine"]
        assert lines[4:7] == ["? Your name?", "  > Celia", "? The word?"]
        assert "cannot hide" in lines[7]
        assert lines[8] == "'Celia' None"


# ------------------------------------------------------------------------------------------------------------- asked


@pytest.mark.parametrize(
    ("keys", "comes"), [("y\n", "2 seats for As You Like It are sold."), ("\n", "Declined: it was not run.")]
)
async def test_a_call_that_needs_approval_runs_after_a_yes_and_nothing_else(
    tmp_path: Path, keys: str, comes: str
) -> None:
    async with asked(tmp_path, demo_agent(pace=0), "approve") as terminal:
        await terminal.shows("Run sell_ticket?", "seats: 2", "Yes or no? [y/N]")
        terminal.types(keys)
        assert await terminal.ends() == 0
        assert comes in terminal.text
        assert ("are sold" in terminal.text) == ("are sold" in comes)


async def test_characters_typed_before_the_question_do_not_answer_it(tmp_path: Path) -> None:
    approved: list[object] = []
    asking = asyncio.Event()

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content="Wait.")
        await asking.wait()
        question = InputRequest(request_id="q", kind="confirmation", title="Sure?")
        approved.append(await context.ask(question))

    async with asked(tmp_path, ScriptedAgent(script), "hi") as terminal:
        await terminal.shows("Wait.")
        terminal.types("y\n")
        asking.set()
        await terminal.shows("Sure?", "[y/N]")
        terminal.types("n\n")
        assert await terminal.ends() == 0
        assert approved == [False]
        assert "y" not in terminal.text.split("[y/N]")[0].split("Sure?")[0].split("Wait.")[1]


def asks(*questions: InputRequest) -> Script:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        for question in questions:
            yield Message(content=f"<{await context.ask(question)!r}> ")

    return script


async def test_texts_and_passwords_are_asked_for_and_passwords_not_shown(tmp_path: Path) -> None:
    agent = ScriptedAgent(
        asks(
            InputRequest(request_id="name", kind="input", title="Your name?", placeholder="first and last"),
            InputRequest(request_id="word", kind="password", title="The word?"),
            InputRequest(request_id="none", kind="input", title="More?"),
        )
    )
    async with asked(tmp_path, agent, "hi") as terminal:
        await terminal.shows("Your name?", "first and last", "\n  >")
        terminal.types("Rosalind\n")
        await terminal.shows("<'Rosalind'>", "The word?", "(not shown) >")
        before = terminal.text
        terminal.types("arden\n")
        await terminal.shows("More?")
        assert "arden" not in terminal.text[len(before) :].split("<")[0]
        await terminal.until(lambda: terminal.text.endswith("  >"))
        terminal.types("\x04")
        assert await terminal.ends() == 0
        assert "<'arden'>" in terminal.text
        assert "<None>" in terminal.text


SEATING = {
    "type": "object",
    "required": ["row"],
    "properties": {
        "row": {"type": "string", "title": "Row", "oneOf": [{"const": "s", "title": "Stalls"}]},
        "seats": {"type": "integer", "default": 2},
        "aisle": {"type": "boolean"},
    },
}


async def test_forms_and_choices_are_asked_for_in_lines_and_a_wrong_answer_again(tmp_path: Path) -> None:
    agent = ScriptedAgent(
        asks(
            InputRequest(request_id="form", kind="form", title="Which seats?", schema=SEATING),
            InputRequest(request_id="play", kind="input", title="Which play?", choices=("Hamlet", "Macbeth")),
            InputRequest(request_id="pay", kind="confirmation", title="Pay?", url="https://pay.example/1"),
        )
    )
    async with asked(tmp_path, agent, "hi") as terminal:
        await terminal.shows("Which seats?", "Row (1 Stalls) >")
        terminal.types("9\n")
        await terminal.shows("seats (optional) > 2")
        terminal.types("\n")
        await terminal.shows("aisle (optional; yes or no) >")
        terminal.types("no\n")
        await terminal.shows("The answer does not fit: Row: it is not one of the choices")
        await terminal.until(lambda: terminal.text.endswith("Row (1 Stalls) >"))
        terminal.types("1\n")
        await terminal.until(lambda: terminal.text.count("seats (optional)") == 2)
        terminal.types("\n")
        await terminal.until(lambda: terminal.text.endswith("no"))
        terminal.types("\n")
        await terminal.shows("Which play?", "1. Hamlet", "2. Macbeth")
        await terminal.until(lambda: terminal.text.endswith("  >"))
        terminal.types("2\n")
        await terminal.shows("https://pay.example/1", "Yes or no?")
        terminal.types("y\n")
        assert await terminal.ends() == 0
        assert "<{'row': 's', 'seats': 2, 'aisle': False}>" in terminal.text
        assert "<'Macbeth'>" in terminal.text
        assert "<True>" in terminal.text


async def ask_twice(context: RunContext) -> AsyncIterator[Event]:
    yield Message(content="Both:")
    questions = [InputRequest(request_id=title, kind="input", title=title) for title in ("First?", "Second?")]
    yield Message(content=f" {await asyncio.gather(*map(context.ask, questions))}")


async def test_two_questions_are_asked_one_after_the_other_and_one_answer_is_not_for_both(tmp_path: Path) -> None:
    async with asked(tmp_path, ScriptedAgent(ask_twice), "hi") as terminal:
        await terminal.until(lambda: terminal.text.endswith("  >"))
        assert "Second?" not in terminal.text
        terminal.types("one\ntwo\n")
        await terminal.shows("Second?")
        await terminal.until(lambda: terminal.text.endswith("  >"))
        terminal.types("three\n")
        assert await terminal.ends() == 0
        assert "['one', 'three']" in terminal.text


async def test_an_answer_to_a_question_that_was_answered_elsewhere_is_not_accepted(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, demo_agent(pace=0)) as service,
        in_terminal(tmp_path, "chat", "demo", "approve", "--url", url(service)) as terminal,
    ):
        await terminal.shows("Yes or no?")
        [run] = service.state.runs
        body = {"request_id": "approve:call_0_0", "value": True}
        assert (await service.client.post(f"/v1/runs/{run.run_id}/input", json=body)).status_code == 202
        terminal.types("n\n")
        await terminal.shows("The server did not accept the answer", "are sold")
        assert await terminal.ends() == 0


async def test_without_a_terminal_no_question_is_asked_and_the_call_does_not_run(tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(pace=0)) as service:
        output = await in_pipes(tmp_path, "chat", "demo", "approve", "--url", url(service))
    assert output.exit_code == 0
    assert "No question can be asked here" in output.beside
    assert "– sell_ticket · not asked" in output.beside
    assert "Not run: the user could not be asked" in output.out


# ----------------------------------------------------------------------------------------------------------- Ctrl-C


async def test_ctrl_c_stops_the_run_in_its_call_and_says_so(tmp_path: Path) -> None:
    steps = Steps([Message(content="Now."), started("a")], [completed("a", "never")])
    async with (
        serving(tmp_path, steps.agent) as service,
        in_terminal(tmp_path, "chat", "scripted", "hi", "--url", url(service)) as terminal,
    ):
        steps.go_on()
        await terminal.shows("paint")
        [run] = service.state.runs
        terminal.presses_ctrl_c()
        assert await terminal.ends() == 130
        assert run.ended
        assert "– paint · stopped" in terminal.text
        assert "Stopped." in terminal.text


async def test_ctrl_c_in_a_conversation_stops_only_the_answer(tmp_path: Path) -> None:
    steps = Steps([started("a")], [completed("a", "never")], [])
    async with asked(tmp_path, steps.agent) as terminal:
        await terminal.shows("›")
        terminal.types("one\n")
        steps.go_on()
        await terminal.shows("paint")
        terminal.presses_ctrl_c()
        await terminal.shows("Stopped.")
        await terminal.until(lambda: terminal.text.count("›") == 2)
        terminal.types("\x04")
        assert await terminal.ends() == 0


async def test_ctrl_c_at_a_question_stops_the_run(tmp_path: Path) -> None:
    async with asked(tmp_path, demo_agent(pace=0), "approve") as terminal:
        await terminal.shows("[y/N]")
        terminal.presses_ctrl_c()
        assert await terminal.ends() == 130
        assert "Stopped." in terminal.text
        assert "are sold" not in terminal.text
        assert "Traceback" not in terminal.text


async def test_after_ctrl_c_at_a_question_no_other_is_asked(tmp_path: Path) -> None:
    async with asked(tmp_path, ScriptedAgent(ask_twice), "hi") as terminal:
        await terminal.until(lambda: terminal.text.endswith("  >"))
        terminal.presses_ctrl_c()
        assert await terminal.ends() == 130
        assert "Second?" not in terminal.text


async def test_a_run_goes_on_while_a_question_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        answer = asyncio.create_task(context.ask(InputRequest(request_id="q", kind="input", title="Which?")))
        for number in range(150):
            # More than the sockets between hold for a client that does not read.
            yield ToolCallStart(tool_call_id=f"c{number}", tool_name="paint")
            yield ToolCallComplete(tool_call_id=f"c{number}", result="x" * 100_000)
        yield Message(content=f"You said {await answer}.")

    monkeypatch.setattr(sse, "SEND_TIMEOUT_SECONDS", 0.2)
    async with (
        serving(tmp_path, ScriptedAgent(script), detach_grace_seconds=0.2) as service,
        in_terminal(tmp_path, "chat", "scripted", "hi", "--url", url(service)) as terminal,
    ):
        await terminal.until(lambda: terminal.text.endswith("  >"))
        [run] = service.state.runs
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run.wait(), 4)
        terminal.types("blue\n")
        assert await terminal.ends() == 0
        assert "You said blue." in terminal.text


async def test_a_second_ctrl_c_leaves_while_the_run_has_not_ended(tmp_path: Path) -> None:
    steps = Steps([started("a")], [])
    async with (
        serving(tmp_path, steps.agent) as service,
        Balancer(random.Random(0)).listening() as balancer,
    ):
        balancer.add("server", service.client.base_url.port or 0)
        async with in_terminal(tmp_path, "chat", "scripted", "hi", "--url", balancer.url) as terminal:
            steps.go_on()
            await terminal.shows("paint")
            balancer.drop("server")
            terminal.presses_ctrl_c()
            await terminal.shows("Press Ctrl-C again to leave at once")
            terminal.presses_ctrl_c()
            assert await terminal.ends() == 130
            assert "Left. It is unknown" in terminal.text
            assert "Traceback" not in terminal.text


# ---------------------------------------------------------------------------------------------------- lost and resumed


async def test_resume_after_a_lost_connection_shows_every_word_once(tmp_path: Path) -> None:
    steps = Steps([Message(content="one "), started("a")], [completed("a", "fine"), Message(content="two ")])
    async with (
        serving(tmp_path, steps.agent) as service,
        Balancer(random.Random(0)).listening() as balancer,
    ):
        port = service.client.base_url.port or 0
        balancer.add("server", port)
        async with in_terminal(tmp_path, "chat", "scripted", "hi", "--url", balancer.url) as terminal:
            steps.go_on()
            await terminal.shows("one", "paint")
            balancer.drop("server")
            await terminal.shows("Reconnecting…")
            steps.go_on()
            balancer.add("server", port)
            assert await terminal.ends() == 0
            shown = terminal.text.split("1 call")[0].split()
            assert (shown.count("one"), shown.count("two"), shown.count("paint")) == (1, 1, 1)
            assert "Reconnecting" not in terminal.text


async def test_resume_of_a_run_that_the_server_has_forgotten_fails_with_a_message(tmp_path: Path) -> None:
    steps = Steps([started("a")], [])
    async with Balancer(random.Random(0)).listening() as balancer:
        async with serving(tmp_path / "one", steps.agent) as service, serving(tmp_path / "two", steps.agent) as other:
            balancer.add("server", service.client.base_url.port or 0)
            async with in_terminal(tmp_path, "chat", "scripted", "hi", "--url", balancer.url) as terminal:
                steps.go_on()
                await terminal.shows("paint")
                balancer.add("other", other.client.base_url.port or 0)
                balancer.drop("server")
                assert await terminal.ends() == 1
                assert "could not be resumed" in terminal.text
                assert "✗ paint" in terminal.text


# ------------------------------------------------------------------------------------------------------ hostile output

# Of Rich and Prompt Toolkit: colours, the cursor moved in its row and upwards, rows erased, modes of a prompt.
OURS = re.compile(rb"\x1b\[([\d;]*m|\d*[ACD]|2?K|J|6n|\?(1|7|12|25|2004)[hl])|\r\n|\r|\n|\x08")
HOSTILE = (
    "[blink]markup[/blink] :boom: before\x1b[2J\x1b[H\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b]8;;https://evil.example\x1b\\link"
    "\x9b31m\x9d0;owned\x9c\x08\x08\x08over\rwritten\x00\x7f\u202eesrever\u2066\u2069\u200b\u2028after"
)


async def test_text_of_models_and_tools_cannot_control_the_terminal(tmp_path: Path) -> None:
    agent = ScriptedAgent(
        asks(InputRequest(request_id="q", kind="input", title=HOSTILE, message=HOSTILE, placeholder=HOSTILE))
    )

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Status(content=HOSTILE)
        yield Reasoning(content=HOSTILE)
        yield started("a", HOSTILE, **{HOSTILE: HOSTILE})
        yield step("a", HOSTILE, 10)
        yield completed("a", HOSTILE, HOSTILE)
        yield started("b")
        yield ToolCallError(tool_call_id="b", tool_name=TOOL, error=HOSTILE)
        yield Source(source={"name": HOSTILE, "url": HOSTILE}, metadata=({"source_number": HOSTILE},))
        yield Message(content=HOSTILE)
        async for event in agent.run(context):
            yield event

    for given in ([], ["--verbose"]):
        async with (
            serving(tmp_path, ScriptedAgent(script)) as service,
            in_terminal(tmp_path, "chat", "scripted", "hi", "--url", url(service), *given) as terminal,
        ):
            await terminal.until(lambda: terminal.text.endswith("  >"))
            terminal.types("fine\n")
            assert await terminal.ends() == 0
            rest = OURS.sub(b"", bytes(terminal.raw)).decode()
            assert [character for character in rest if not (character.isprintable())] == []
            assert "[blink]markup[/blink] :boom: before␛[2J" in terminal.text
            assert "<U+202E>" in terminal.text
            assert terminal.screen.title == ""


async def test_output_in_a_file_has_no_control_characters(tmp_path: Path) -> None:
    async with serving(tmp_path, says(Message(content=HOSTILE), started("a", HOSTILE))) as service:
        output = await in_pipes(tmp_path, "chat", "scripted", "hi", "--url", url(service))
    assert [one for one in output.out + output.beside if not one.isprintable() and one != "\n"] == []


# ------------------------------------------------------------------------------------------------------ pipes and JSON


async def test_standard_output_has_the_answer_and_standard_error_the_rest(tmp_path: Path) -> None:
    agent = says(
        Reasoning(content="Hm."),
        Message(content="I look.\n"),
        started("a", what="a stage"),
        completed("a", "A picture."),
        Message(content="A wrong word."),
        Rewind(),
        Message(content="There "),
        Message(content="it is."),
    )
    async with serving(tmp_path, agent) as service:
        output = await in_pipes(tmp_path, "chat", "scripted", "--url", url(service), said="What is\nthere?\n")
    assert output.out == "I look.\n\nThere it is.\n"
    lines = ['→ paint  what="a stage"', '✓ paint  what="a stage"', "  under 1 s  A picture."]
    assert output.beside.splitlines()[:3] == lines
    assert "To continue this chat: callboard chat scripted --chat " in output.beside
    assert output.exit_code == 0


async def test_standard_input_is_the_question_as_a_whole(tmp_path: Path) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content=json.dumps(context.messages[-1]["content"]))

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        output = await in_pipes(tmp_path, "chat", "scripted", "--url", url(service), said="What is\nthere?\n")
        assert json.loads(output.out) == "What is\nthere?"
        empty = await in_pipes(tmp_path, "chat", "scripted", "--url", url(service))
        assert (empty.exit_code, empty.out) == (1, "")
        assert "standard input is empty" in empty.beside


async def test_json_output_is_exactly_the_events_of_the_run(tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(pace=0)) as service:
        output = await in_pipes(tmp_path, "chat", "demo", "--json", "approve", "nasty", "--url", url(service))
    events = [json.loads(line) for line in output.out.splitlines()]
    assert output.out.isascii()
    assert [event["type"] for event in events[:1]] == ["run_start"]
    assert events[-1] == {"type": "done", "finish_reason": "stop"}
    kinds = [event["type"] for event in events]
    assert kinds.count("tool_call_start") == 2
    # No question is asked, so a call that needs approval does not run.
    assert [event["code"] for event in events if event["type"] == "tool_call_error"] == ["not_asked"]
    assert output.exit_code == 0


@pytest.mark.parametrize("given", [[], ["--json"]])
@pytest.mark.parametrize(
    ("events", "exit_code"),
    [([Message(content="fine")], 0), ([Message(content="cut"), Done(finish_reason="length")], 1), (None, 1)],
)
@pytest.mark.slow
async def test_exit_code_is_0_only_if_the_question_was_answered(
    tmp_path: Path, given: list[str], events: list[Event] | None, exit_code: int
) -> None:
    async def fails(_: RunContext) -> AsyncIterator[Event]:
        yield Message(content="begun")
        raise RuntimeError("the agent is broken")

    agent = ScriptedAgent(fails) if events is None else says(*events)
    async with serving(tmp_path, agent) as service:
        output = await in_pipes(tmp_path, "chat", "scripted", "hi", *given, "--url", url(service))
    assert output.exit_code == exit_code
    assert "Traceback" not in output.beside


# ------------------------------------------------------------------------------------------------- agents and servers


async def test_without_an_agent_all_agents_are_listed(tmp_path: Path) -> None:
    async with serving(tmp_path, says(), demo_agent()) as service:
        output = await in_pipes(tmp_path, "chat", "--url", url(service))
    assert [line.split(":")[0] for line in output.out.splitlines()] == ["scripted", "demo"]
    assert output.exit_code == 0


async def test_an_unknown_agent_is_reported_with_the_known_agents(tmp_path: Path) -> None:
    async with serving(tmp_path, says()) as service:
        output = await in_pipes(tmp_path, "chat", "nobody", "hi", "--url", url(service))
    assert (output.exit_code, output.out) == (1, "")
    assert output.beside.splitlines()[0] == "callboard: there is no agent 'nobody'; the agents are"
    assert "scripted: Says what the test wants." in output.beside


async def test_an_unreachable_server_fails_with_a_message(tmp_path: Path) -> None:
    output = await in_pipes(tmp_path, "chat", "demo", "hi", "--url", "http://127.0.0.1:9")
    assert output.exit_code == 1
    assert "Cannot reach a Callboard server at http://127.0.0.1:9" in output.beside
    assert "Traceback" not in output.beside


@pytest.mark.parametrize(("key", "words"), [("another", "The API key is wrong"), ("", "The API key is missing")])
async def test_a_wrong_key_fails_with_a_message(tmp_path: Path, key: str, words: str) -> None:
    async with serving(tmp_path / "server", says(), api_key="right") as service:
        output = await in_pipes(tmp_path, "chat", "scripted", "hi", "--url", url(service), API_KEY=key)
        assert output.exit_code == 1
        assert words in output.beside
        right = await in_pipes(tmp_path, "chat", "scripted", "hi", "--url", url(service), API_KEY="right")
        assert right.exit_code == 0


async def test_a_running_server_at_the_settings_address_is_used(tmp_path: Path) -> None:
    async with serving(tmp_path, says(Message(content="from the server"))) as service:
        port = str(service.client.base_url.port)
        output = await in_pipes(tmp_path, "chat", "scripted", "hi", PORT=port)
    assert output.out == "from the server\n"


@pytest.mark.slow
async def test_without_a_server_the_agents_answer_in_this_process_without_a_port(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(LOOKS_FOR_PORTS)
    first = await in_pipes(tmp_path, "chat", "mine", "hi", "--chat", "c", AGENTS=str(file))
    assert (first.exit_code, first.out) == (0, "0 ports\n")
    again = await in_pipes(tmp_path, "chat", "demo", "remember", "--chat", "c", AGENTS=str(file))
    assert "look" in again.out


LOOKS_FOR_PORTS = """
import os
from callboard import Agent, Skill, register, tool
from callboard.models import ScriptedModel, TextDelta, ToolCallDelta

@tool
def look() -> str:
    "Counts the TCP sockets on which this process listens."
    ours = {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if
            os.path.islink(f"/proc/self/fd/{name}")}
    listening = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in open(table).readlines()[1:]:
            columns = line.split()
            listening += columns[3] == "0A" and f"socket:[{columns[9]}]" in ours
    return f"{listening} ports"

def script(request):
    last = request.messages[-1]
    if last["role"] == "tool":
        return [TextDelta(str(last["content"]))]
    return [ToolCallDelta(0, "call", "look", "{}")]

register(Agent("mine", skills=[Skill("s", "d", tools=[look])], model=ScriptedModel(script)))
"""


# -------------------------------------------------------------------------------------------------------- conversation


async def test_a_chat_continues_with_its_calls_in_the_same_and_in_another_terminal(tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(pace=0)) as service:
        async with in_terminal(tmp_path, "chat", "demo", "--url", url(service)) as terminal:
            await terminal.shows("Earlier questions: 0", "›")
            [chat_id] = re.findall(r"--chat (\w+)", terminal.text)
            terminal.types("cite\n")
            await terminal.until(lambda: terminal.text.count("›") == 2)
            terminal.types("remember\n")
            await terminal.until(lambda: terminal.text.count("›") == 3)
            assert "search_archive" in terminal.text.split("remember\n")[1]
            terminal.types("\x04")
            assert await terminal.ends() == 0
        async with in_terminal(tmp_path, "chat", "demo", "--chat", chat_id, "--url", url(service)) as terminal:
            await terminal.shows("Earlier questions: 2", "›")
            terminal.types("remember\n")
            await terminal.until(lambda: terminal.text.count("›") == 2)
            assert "search_archive" in terminal.text
            terminal.presses_ctrl_c()
            assert await terminal.ends() == 130
            assert "Traceback" not in terminal.text


async def test_help_lists_the_commands_and_the_keys(tmp_path: Path) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content=f"asked {context.messages[-1]['content']}")

    async with asked(tmp_path, ScriptedAgent(script)) as terminal:
        await terminal.shows("/help lists the keys", "›")
        terminal.types("/help\n")
        await terminal.until(lambda: terminal.text.count("›") == 2)
        assert all(word in terminal.text for word in ("/quit", "Ctrl-C", "earlier questions"))
        assert "asked" not in terminal.text
        terminal.types("/etc/hosts?\n")
        await terminal.shows("asked /etc/hosts?")
        await terminal.until(lambda: terminal.text.count("›") == 3)
        terminal.types("/quit\n")
        assert await terminal.ends() == 0


async def test_a_question_is_edited_and_an_earlier_one_asked_again(tmp_path: Path) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Message(content=f"<{context.messages[-1]['content']}>")

    async with asked(tmp_path, ScriptedAgent(script)) as terminal:
        await terminal.shows("›")
        left, up, home = "\x1b[D", "\x1b[A", "\x01"
        terminal.types(f"wht{left}{left}\x7fWh{home}So: \n")
        await terminal.shows("<So: Whht>")
        await terminal.until(lambda: terminal.text.count("›") == 2)
        terminal.types(up)
        await terminal.until(lambda: terminal.text.count("› So: Whht") == 2)
        terminal.types("?\n")
        await terminal.shows("<So: Whht?>")
        await terminal.until(lambda: terminal.text.count("›") == 3)
        terminal.types("\x04")
        assert await terminal.ends() == 0


WARNS = """
import logging, warnings
from callboard import Agent, register, tool
from callboard.models import ScriptedModel, TextDelta, ToolCallDelta

@tool
def look() -> str:
    "Looks."
    warnings.warn("a library is old")
    logging.getLogger("library").warning("a line of the log")
    return "nothing"

def script(request):
    if request.messages[-1]["role"] == "tool":
        return [TextDelta("Seen.")]
    return [ToolCallDelta(0, "call", "look", "{}")]

register(Agent("warns", tools=[look], model=ScriptedModel(script)))
register(Agent("silent", model=ScriptedModel(lambda request: [TextDelta("Well.")])))
"""


def read_logs(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.glob("*.log")}


@pytest.mark.parametrize("agent", ["warns", "silent"])
async def test_the_log_of_the_server_in_this_process_is_a_file_that_is_named_at_the_end(
    tmp_path: Path, agent: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(WARNS)
    variables = {"CALLBOARD_AGENTS": str(file), "TMPDIR": str(tmp_path)}
    async with in_terminal(tmp_path, "chat", agent, columns=200, variables=variables) as terminal:
        await terminal.shows("›")
        terminal.types("go\n")
        await terminal.until(lambda: terminal.text.count("›") == 2)
        terminal.types("\x04")
        assert await terminal.ends() == 0
        logs = re.findall(r"The server's log: (\S+)", terminal.text)
        assert all(line not in terminal.text for line in ("a library is old", "a line of the log", "Traceback"))
    kept = read_logs(tmp_path)
    assert logs == list(kept)
    assert len(logs) == (agent == "warns")
    for written in kept.values():
        assert "a library is old" in written
        assert "a line of the log" in written
        assert "\x1b" not in written


@pytest.mark.slow
async def test_a_chat_of_a_user_is_stored_for_that_user(tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(pace=0)) as service:
        common = ("chat", "demo", "--url", url(service), "--chat", "c")
        first = await in_pipes(tmp_path, *common, "--user", "rosalind", "cite")
        assert first.exit_code == 0
        assert "--user rosalind" in first.beside
        hers = await in_pipes(tmp_path, *common, "--user", "rosalind", "remember")
        assert "search_archive" in hers.out
        others = await in_pipes(tmp_path, *common, "--user", "celia", "remember")
        assert "search_archive" not in others.out


@pytest.mark.slow
async def test_with_a_secret_for_users_the_command_signs_its_user(tmp_path: Path) -> None:
    secret = "what-open-webui-and-this-server-share"
    async with serving(tmp_path, demo_agent(pace=0), api_key="k", open_webui_jwt_secret=secret) as service:
        common = ("chat", "demo", "--url", url(service), "--user", "rosalind", "--chat", "c", "cite")
        known = await in_pipes(tmp_path, *common, API_KEY="k", OPEN_WEBUI_JWT_SECRET=secret)
        assert known.exit_code == 0, known.beside
        again = await in_pipes(tmp_path, *common, API_KEY="k", OPEN_WEBUI_JWT_SECRET=secret)
        assert again.exit_code == 0, again.beside
        stranger = await in_pipes(tmp_path, *common, API_KEY="k")
        assert stranger.exit_code == 1
        assert "names a user without a signature" in stranger.beside
    # In this process too.
    alone = await in_pipes(tmp_path, "chat", "demo", "--user", "celia", "cite", OPEN_WEBUI_JWT_SECRET=secret)
    assert alone.exit_code == 0, alone.beside


@pytest.mark.parametrize("secret", [None, "what-open-webui-and-this-server-share"])
@pytest.mark.slow
async def test_role_and_group_options_admit_to_a_restricted_agent(tmp_path: Path, secret: str | None) -> None:
    access = "demo=group:The family: Öz,demo=role:admin"
    signing = {"OPEN_WEBUI_JWT_SECRET": secret} if secret else {}
    async with serving(tmp_path, demo_agent(pace=0), agent_access=access, open_webui_jwt_secret=secret) as service:
        common = ("chat", "demo", "--url", url(service), "--user", "rosalind")
        for said, exit_code in (
            ((), 1),
            (("--group", "Ushers"), 1),
            (("--group", "Ushers", "--group", "The family: Öz"), 0),
            (("--role", "admin"), 0),
        ):
            asked = await in_pipes(tmp_path, *common, *said, "--chat", "c", "cite", **signing)
            assert asked.exit_code == exit_code, (said, asked.beside)
        assert "--role admin" in asked.beside
    for wrong, problem in ((("--role", "admin"), "--user ID"), (("--user", "a\nb"), "no control characters")):
        refused = await in_pipes(tmp_path, "chat", "demo", *wrong, "cite")
        assert (refused.exit_code, problem in refused.beside) == (1, True)
