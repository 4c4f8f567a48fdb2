"""`callboard chat`, as a process in a real pseudo terminal or between pipes, against a real server."""

import asyncio
import json
import random
import re
import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard._cli.chat import TAKEN_BACK, make_line, make_visible
from callboard.agents import AgentLike, RunContext
from callboard.agents.context import TurnContext
from callboard.http import sse
from callboard_protocol import (
    Done,
    Error,
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
    UserMessage,
)
from examples.demo import demo_agent
from tests.cli.terminal import Terminal, in_pipes, in_terminal
from tests.fakes.http_answer import answering
from tests.faults.balancer import Balancer
from tests.serving import Script, ScriptedAgent, Service, request, serving

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


# ------------------------------------------------------------------------------------------------------------ answers


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
        assert terminal.text.count("The curtain rises.") == 1


async def test_calls_have_a_line_when_they_run_and_a_line_when_they_end(tmp_path: Path) -> None:
    file = {"type": "image", "url": "https://example.org/dusk.png", "name": "dusk.png", "content_type": "image/png"}
    steps = Steps(
        [Reasoning(content="Let me see."), Message(content="I paint.")],
        [started("a", what="x" * 200), started("b", "b")],
        [
            ToolCallError(tool_call_id="b", tool_name="b", error="no paper", code="failed"),
            Plan(steps=(PlanStep(id="1", content="Look", state="in_progress"),)),
            ToolCallComplete(tool_call_id="a", tool_name=TOOL, result="A picture.\nOf dusk.", files=(file,)),
            Source(source={"name": "The Globe", "url": "https://globe.example"}, metadata=({"source_number": 1},)),
            Message(content="Done [source1]."),
        ],
    )
    async with asked(tmp_path, steps.agent, "hi") as terminal:
        steps.go_on()
        await terminal.shows("I paint.")
        steps.go_on()
        await terminal.shows("→ b")
        steps.go_on()
        assert await terminal.ends() == 0
    assert b"\x1b[2mLet me see." in terminal.raw
    lines = re.sub(r"\d+\.\d s", "1.2 s", terminal.text).splitlines()[1:]
    assert re.fullmatch(r'→ paint  \{"what": "x{50,}…', lines.pop(2))
    assert lines == [
        "Let me see.",
        "I paint.",
        "→ b  {}",
        "✗ b  1.2 s Error: no paper",
        "· Plan: 0 of 1: Look",
        "✓ paint  1.2 s A picture. Of dusk.",
        "  ⇩ dusk.png  https://example.org/dusk.png",
        "[source1] The Globe  https://globe.example",
        "Done [source1].",
    ]


async def test_a_notice_says_which_text_a_rewind_has_withdrawn(tmp_path: Path) -> None:
    agent = says(Message(content="A wrong word."), Rewind(), Message(content="Right."))
    async with asked(tmp_path, agent, "hi", columns=120) as terminal:
        assert await terminal.ends() == 0
    assert terminal.text.endswith(f"A wrong word.\n{TAKEN_BACK}\nRight.")


async def test_no_password_is_asked_for_where_typed_characters_are_shown(tmp_path: Path) -> None:
    questions = InputRequest(request_id="name", kind="input", title="Your name?"), WORD
    async with asked(tmp_path, ScriptedAgent(asks(*questions)), "hi", variables={"TERM": "dumb"}) as terminal:
        await terminal.shows("Your name?", "\n  >")
        terminal.types("Celia\n")
        assert await terminal.ends() == 0
        assert "<'Celia'>" in terminal.text
        assert "<None>" in terminal.text


async def test_lines_typed_while_an_answer_runs_are_read_in_it_in_order_or_asked_next(tmp_path: Path) -> None:
    go_on = asyncio.Semaphore(0)
    read: list[list[str]] = []

    async def script(context: RunContext) -> AsyncIterator[Event]:
        turn = TurnContext.of(context)
        read.append([message["content"] for message in context.messages if message["role"] == "user"])
        if (question := context.messages[-1]["content"]) != "hi":
            yield Message(content=f"<{question}>")
            return
        yield Message(content="The curtain")
        for words in (" is slowly", " going up."):
            await go_on.acquire()
            yield Message(content=words)
        await go_on.acquire()
        for said in await turn.take_messages():
            yield said
        await turn.take_messages(is_last=True)
        yield Message(content="The end")
        await go_on.acquire()
        yield Message(content=" is near.")

    async with (
        serving(tmp_path, ScriptedAgent(script)) as service,
        in_terminal(tmp_path, "chat", "scripted", "hi", "--url", url(service), "--chat", "c") as terminal,
    ):
        for shown, line in (("The curtain", "Louder!"), ("slowly", "And clearer."), ("The end", "Encore!")):
            await terminal.shows(shown)
            terminal.types(line)
            await terminal.shows(f"› {line}")
            terminal.types("\n")
            go_on.release()
            if line == "And clearer.":
                await terminal.shows("going up.")
                go_on.release()
        assert await terminal.ends() == 0
        await in_pipes(tmp_path, "chat", "scripted", "bye", "--url", url(service), "--chat", "c")
    said = "hi\n\nLouder!\n\nAnd clearer."
    assert read == [["hi"], [said, "Encore!"], [said, "Encore!", "bye"]]
    assert terminal.text.splitlines()[1:] == [
        "The curtain",
        "› Louder!",
        " is slowly",
        "› And clearer.",
        " going up.",
        "· The agent reads: Louder!",
        "· The agent reads: And clearer.",
        "The end",
        "› Encore!",
        " is near.",
        "› Encore!",
        "<Encore!>",
    ]


async def test_a_chat_whose_client_has_sent_no_message_ids_goes_on_with_its_questions_in_order(tmp_path: Path) -> None:
    read: list[list[str]] = []

    async def script(context: RunContext) -> AsyncIterator[Event]:
        read.append([message["content"] for message in context.messages])
        yield Message(content=f"<{read[-1][-1]}>")

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        for question in ("one", "two"):
            asked = [{"role": "user", "content": question}]
            await service.events(request(chat_id="c", messages=asked))
        await in_pipes(tmp_path, "chat", "scripted", "three", "--url", url(service), "--chat", "c")
    assert read[-1] == ["one", "<one>", "two", "<two>", "three"]


# ------------------------------------------------------------------------------------------------------------- asked


@pytest.mark.parametrize(
    ("keys", "comes"),
    [
        ("y\n", "2 seats for As You Like It are sold."),
        ("\n", "Declined: it was not run."),
        ("Yes, but in row 3\n", "Declined: it was not run."),
    ],
)
async def test_a_call_that_needs_approval_runs_after_a_yes_and_nothing_else(
    tmp_path: Path, keys: str, comes: str
) -> None:
    async with asked(tmp_path, demo_agent(pace=0), "approve") as terminal:
        await terminal.shows("Sell tickets?", "seats: 2", "Yes, no, or what to do instead? [y/N]")
        terminal.types(keys)
        assert await terminal.ends() == 0
        assert comes in terminal.text
        assert ("are sold" in terminal.text) == ("are sold" in comes)


async def test_a_tool_is_allowed_always_in_a_chat_or_refused_with_words(tmp_path: Path) -> None:
    answers: list[object] = []
    given = ("a", "always", "y", "n", "", "Ask Ada")

    async def script(context: RunContext) -> AsyncIterator[Event]:
        for number, answer in enumerate(given):
            question = InputRequest(
                request_id=f"{number}",
                kind="confirmation",
                title=f"Run {answer}?",
                remember=True,
                tool_call_id="c",
            )
            answers.append(await context.ask(question))
        yield Message(content="Asked.")

    async with asked(tmp_path, ScriptedAgent(script), "hi") as terminal:
        for answer in given:
            await terminal.shows(f"Run {answer}?")
            await terminal.until(lambda: terminal.text.endswith("[y/N/a]"))
            terminal.types(f"{answer}\n")
        assert await terminal.ends() == 0
    assert answers == ["always", "always", True, False, False, {"words": "Ask Ada"}]


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
        await terminal.shows("› y")
        asking.set()
        await terminal.shows("Sure?", "[y/N]")
        terminal.types("n\n")
        # The agent has not read the line, so it is the next question.
        await terminal.until(lambda: terminal.text.count("[y/N]") == 2)
        terminal.types("n\n")
        assert await terminal.ends() == 0
        assert approved == [False, False]


def asks(*questions: InputRequest) -> Script:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        for question in questions:
            yield Message(content=f"<{await context.ask(question)!r}> ")

    return script


WORD = InputRequest(request_id="word", kind="password", title="The word?")


async def test_texts_and_passwords_are_asked_for_and_passwords_not_shown(tmp_path: Path) -> None:
    agent = ScriptedAgent(
        asks(
            InputRequest(request_id="name", kind="input", title="Your name?", placeholder="first and last"),
            WORD,
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
        await terminal.shows("Yes, no, or what to do instead?")
        [run] = service.state.runs
        body = {"request_id": "approve:call_0_0", "value": True}
        assert (await service.client.post(f"/v1/runs/{run.run_id}/input", json=body)).status_code == 202
        terminal.types("n\n")
        await terminal.shows("The server did not accept this", "are sold")
        assert await terminal.ends() == 0


async def test_without_a_terminal_no_question_is_asked_and_the_call_does_not_run(tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(pace=0)) as service:
        output = await in_pipes(tmp_path, "chat", "demo", "approve", "--url", url(service))
    assert output.exit_code == 0
    assert "No question can be asked here" in output.beside
    assert "– sell_ticket  " in output.beside
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
        assert "– paint  " in terminal.text
        assert "ended early: cancelled" in terminal.text


async def test_ctrl_c_in_a_conversation_stops_only_the_answer(tmp_path: Path) -> None:
    steps = Steps([started("a")], [completed("a", "never")], [])
    async with asked(tmp_path, steps.agent) as terminal:
        await terminal.shows("›")
        terminal.types("one\n")
        steps.go_on()
        await terminal.shows("paint")
        terminal.presses_ctrl_c()
        await terminal.shows("ended early: cancelled")
        await terminal.until(lambda: terminal.text.count("›") == 2)
        terminal.types("\x04")
        assert await terminal.ends() == 0


async def test_ctrl_c_at_a_question_stops_the_run(tmp_path: Path) -> None:
    async with asked(tmp_path, demo_agent(pace=0), "approve") as terminal:
        await terminal.shows("[y/N]")
        terminal.presses_ctrl_c()
        assert await terminal.ends() == 130
        assert "ended early: cancelled" in terminal.text
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
    may_end = asyncio.Event()

    async def script(_: RunContext) -> AsyncIterator[Event]:
        yield started("a")
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()

    async with asked(tmp_path, ScriptedAgent(script), "hi") as terminal:
        await terminal.shows("paint")
        terminal.presses_ctrl_c()
        await terminal.shows("Press Ctrl-C again to leave at once")
        terminal.presses_ctrl_c()
        assert await terminal.ends() == 130
        assert "Traceback" not in terminal.text
        may_end.set()


async def test_a_lost_connection_ends_the_answer_with_a_message(tmp_path: Path) -> None:
    steps = Steps([Message(content="one "), started("a")], [])
    async with (
        serving(tmp_path, steps.agent) as service,
        Balancer(random.Random(0)).listening() as balancer,
    ):
        balancer.add("server", service.client.base_url.port or 0)
        async with in_terminal(tmp_path, "chat", "scripted", "hi", "--url", balancer.url) as terminal:
            steps.go_on()
            await terminal.shows("one", "paint")
            balancer.drop("server")
            assert await terminal.ends() == 1
            assert "The connection to the server was lost" in terminal.text


# ------------------------------------------------------------------------------------------------------ hostile output

# Of Rich and Prompt Toolkit: colours, the cursor moved in its row and upwards, rows erased, modes of a prompt.
OURS = re.compile(rb"\x1b\[([\d;]*m|\d*[ACD]|2?K|J|6n|\?(1|7|12|25|2004)[hl])|\r\n|\r|\n|\x08")
HOSTILE = (
    "[blink]markup[/blink] :boom: before\x1b[2J\x1b[H\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b]8;;https://evil.example\x1b\\link"
    "\x9b31m\x9d0;owned\x9c\x08\x08\x08over\rwritten\x00\x7f\u202eesrever\u2066\u2069\u200b\u2028after"
)


async def test_nothing_that_a_server_sends_can_control_the_terminal(tmp_path: Path) -> None:
    form = {
        "type": "object",
        "properties": {HOSTILE: {"type": "string", "title": HOSTILE, "description": HOSTILE, "default": HOSTILE}},
    }
    questions = (
        InputRequest(request_id="q", kind="input", title=HOSTILE, message=HOSTILE, placeholder=HOSTILE),
        InputRequest(request_id="c", kind="input", title=HOSTILE, choices=(HOSTILE,)),
        InputRequest(request_id="f", kind="form", title=HOSTILE, message=HOSTILE, schema=form),
    )
    file = {"type": "file", "url": f"https://evil.example/{HOSTILE}", "name": HOSTILE, "content_type": HOSTILE}

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield Status(content=HOSTILE)
        yield UserMessage(message_id="u", content=HOSTILE)
        yield Plan(steps=(PlanStep(id="1", content=HOSTILE, state="in_progress"),))
        yield Reasoning(content=HOSTILE)
        yield started("a", HOSTILE, **{HOSTILE: HOSTILE})
        yield step("a", HOSTILE, 10)
        yield ToolCallComplete(tool_call_id="a", tool_name=HOSTILE, result=HOSTILE, files=(file,))
        yield started("b").model_copy(update={"tool_args": HOSTILE})
        yield ToolCallError(tool_call_id="b", tool_name=TOOL, error=HOSTILE)
        yield Source(source={"name": HOSTILE, "url": HOSTILE}, metadata=({"source_number": HOSTILE},))
        for character in HOSTILE:
            yield Message(content=character)
        for question in questions:
            await context.ask(question)
        yield Error(message=HOSTILE)

    async with (
        serving(tmp_path, ScriptedAgent(script)) as service,
        in_terminal(tmp_path, "chat", "scripted", "hi", "--url", url(service), columns=200) as terminal,
    ):
        await terminal.until(lambda: terminal.text.endswith("  >"))
        terminal.types("fine\n")
        await terminal.until(lambda: terminal.text.endswith("  >") and "1. [blink]" in terminal.text)
        terminal.types("1\n")
        await terminal.shows("optional")
        terminal.types("\n")
        assert await terminal.ends() == 1
        rest = OURS.sub(b"", bytes(terminal.raw)).decode()
        assert [character for character in rest if not character.isprintable()] == []
        assert "[blink]markup[/blink] :boom: before<U+001B>[2J" in terminal.text
        assert "<U+202E>" in terminal.text
        assert terminal.screen.title == ""


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": HOSTILE, "code": HOSTILE}}),
        (200, {"data": [{"id": HOSTILE, "description": HOSTILE}]}),
        (200, {"data": HOSTILE}),
        (200, {HOSTILE: 1}),
        (503, [HOSTILE]),
    ],
)
async def test_no_answer_of_another_server_can_control_the_terminal(tmp_path: Path, status: int, body: object) -> None:
    with answering(status, json.dumps(body), {"Content-Type": "application/json", "X": "a"}) as port:
        for words in (("demo", "hi"), ()):
            output = await in_pipes(tmp_path, "chat", *words, "--url", f"http://127.0.0.1:{port}")
            assert [one for one in output.out + output.beside if not one.isprintable() and one != "\n"] == []
            assert "Traceback" not in output.beside


async def test_output_in_a_file_has_no_control_characters(tmp_path: Path) -> None:
    async with serving(tmp_path, says(Message(content=HOSTILE), started("a", HOSTILE))) as service:
        output = await in_pipes(tmp_path, "chat", "scripted", "hi", "--url", url(service))
    assert [one for one in output.out + output.beside if not one.isprintable() and one != "\n"] == []


ANYTHING = st.text(st.characters(categories=("L", "M", "N", "P", "S", "Z", "C")))


@given(ANYTHING)
def test_no_control_character_is_left(text: str) -> None:
    left = {character for character in make_visible(text) if unicodedata.category(character) in ("Cc", "Cf", "Cs")}
    assert left <= set("\n\t\u200c\u200d")
    assert len(make_line(text).splitlines()) <= 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "<U+001B>[31mred"),
        ("a\r\nb", "a\nb"),
        ("\x9b2J", "<U+009B>2J"),
        ("\u202eevil", "<U+202E>evil"),
        ("👩\u200d🔬 नमस्ते", "👩\u200d🔬 नमस्ते"),
    ],
)
def test_characters_that_control_a_terminal_become_signs(text: str, shown: str) -> None:
    assert make_visible(text) == shown


# -------------------------------------------------------------------------------------------------------------- pipes


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
    first, *lines = output.beside.splitlines()
    assert first.startswith("To continue this chat, add --chat ")
    assert lines[0] == '→ paint  {"what": "a stage"}'
    assert re.fullmatch(r"✓ paint  \d\.\d s A picture\.", lines[1])
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


@pytest.mark.parametrize(
    ("events", "exit_code"),
    [([Message(content="fine")], 0), ([Message(content="cut"), Done(finish_reason="length")], 1), (None, 1)],
)
@pytest.mark.slow
async def test_exit_code_is_0_only_if_the_question_was_answered(
    tmp_path: Path, events: list[Event] | None, exit_code: int
) -> None:
    async def fails(_: RunContext) -> AsyncIterator[Event]:
        yield Message(content="begun")
        raise RuntimeError("the agent is broken")

    agent = ScriptedAgent(fails) if events is None else says(*events)
    async with serving(tmp_path, agent) as service:
        output = await in_pipes(tmp_path, "chat", "scripted", "hi", "--url", url(service))
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


@pytest.mark.parametrize(
    ("key", "words"), [("another", "API key is wrong"), ("", "API key is missing"), ("é", "cannot be sent")]
)
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


# -------------------------------------------------------------------------------------------------------- conversation


async def test_a_chat_continues_with_its_calls_in_the_same_and_in_another_terminal(tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(pace=0)) as service:
        async with in_terminal(tmp_path, "chat", "demo", "--url", url(service)) as terminal:
            await terminal.shows("›")
            [chat_id] = re.findall(r"--chat (\w+)", terminal.text)
            terminal.types("cite\n")
            await terminal.until(lambda: terminal.text.count("›") == 2)
            terminal.types("remember\n")
            await terminal.until(lambda: terminal.text.count("›") == 3)
            assert "search_archive" in terminal.text.split("remember\n")[1]
            terminal.types("\x04")
            assert await terminal.ends() == 0
        async with in_terminal(tmp_path, "chat", "demo", "--chat", chat_id, "--url", url(service)) as terminal:
            await terminal.shows("›")
            terminal.types("remember\n")
            await terminal.until(lambda: terminal.text.count("›") == 2)
            assert "search_archive" in terminal.text
            terminal.presses_ctrl_c()
            assert await terminal.ends() == 130
            assert "Traceback" not in terminal.text


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


@pytest.mark.slow
async def test_a_chat_of_a_user_is_stored_for_that_user(tmp_path: Path) -> None:
    async with serving(tmp_path, demo_agent(pace=0)) as service:
        common = ("chat", "demo", "--url", url(service), "--chat", "c")
        first = await in_pipes(tmp_path, *common, "--user", "rosalind", "cite")
        assert first.exit_code == 0
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
    for wrong, problem in ((("--role", "admin"), "--user ID"), (("--user", "a\nb"), "no control characters")):
        refused = await in_pipes(tmp_path, "chat", "demo", *wrong, "cite")
        assert (refused.exit_code, problem in refused.beside) == (1, True)
