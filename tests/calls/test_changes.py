"""Arguments of a call that the user changes while they are asked to approve it."""

import asyncio

import pytest
from pydantic import SecretStr

from callboard.agents.resolving import resolve_calls
from callboard.calls import Tool, ToolCall, tool
from callboard.calls.approval import REFUSED, Approval
from callboard.calls.call import CallContext, ResolvedCall
from callboard.calls.forms import ChangesForm, UnfitAnswer
from callboard.calls.limits import Budget, Limits
from callboard.calls.runner import CallRunner, EventBuffer
from callboard.redaction import Redaction
from callboard_formats.syntax import WrittenCall
from callboard_protocol import InputRequest

PRICE = {"type": "integer", "multipleOf": 10}


async def buy(thing: str, euros: int, payer: str) -> None:
    """Buys something."""


@tool(secrets=["code"])
async def unlock(door: str, code: SecretStr) -> None:
    """Unlocks a door."""


def resolve(written: ToolCall) -> ResolvedCall:
    payer = {"type": "string", "default": "the-first-payer"}
    schema = {"type": "object", "properties": {"thing": {"type": "string"}, "euros": PRICE, "payer": payer}}
    buying = Tool("buy", "Buys something.", schema, buy, requires_confirmation=True)
    [call] = resolve_calls([written], {"buy": buying, "unlock": unlock}, Budget(Limits()), Redaction())
    assert isinstance(call, ResolvedCall)
    return call


def make_untyped_call(name: str, arguments: str) -> ToolCall:
    return ToolCall("c", name, arguments, written=WrittenCall(name, arguments, untyped=True))


def test_call_whose_values_were_all_written_as_texts_can_be_changed() -> None:
    form = ChangesForm(resolve(make_untyped_call("buy", '{"thing": "a piano", "euros": "900"}')), Redaction())
    assert form.read({"arguments": {"thing": "a harp", "euros": 900}}) is True
    assert form.call.arguments == {"thing": "a harp", "euros": 900}


def test_argument_with_a_secret_in_its_value_or_its_schema_cannot_be_changed() -> None:
    call = resolve(ToolCall("c", "buy", {"thing": "with card 1234-5678-9012"}))
    assert list(ChangesForm(call, Redaction(["1234-5678-9012"])).schema["properties"]) == ["euros", "payer"]
    assert list(ChangesForm(call, Redaction(["the-first-payer"])).schema["properties"]) == ["thing", "euros"]


def test_untyped_call_with_a_secret_argument_cannot_be_changed() -> None:
    call = resolve(make_untyped_call("unlock", '{"door": "back", "code": "1234"}'))
    assert ChangesForm(call, Redaction()).schema == {}


def test_changes_to_a_repaired_call_keep_its_secret() -> None:
    call = resolve(ToolCall("c", "Unlock", {"door": 5, "code": "1234"}))
    assert call.repairs
    form = ChangesForm(call, Redaction())
    assert form.read({"arguments": {"door": "back"}}) is True
    assert form.call.arguments == {"door": "back", "code": SecretStr("1234")}


def test_user_reads_why_the_tool_does_not_accept_their_changes() -> None:
    form = ChangesForm(resolve(ToolCall("c", "buy", {"thing": "a piano", "euros": 900})), Redaction())
    with pytest.raises(UnfitAnswer, match=r"^argument 'euros': 905 is not a multiple of 10\.$"):
        form.read({"arguments": {"thing": "a piano", "euros": 905}})


async def test_call_that_is_refused_after_a_takeover_is_not_said_to_have_run() -> None:
    async def refuse(_: InputRequest) -> bool:
        return False

    events = EventBuffer()
    runner = CallRunner(events, CallContext(approval=Approval(answer_to=refuse)))
    # The server that the user sent the changes to was killed before the tool ran.
    call = resolve(ToolCall("c", "buy", {"thing": "a harp"}, is_changed=True))
    running = asyncio.create_task(runner.run_round([call]))
    async for _ in events.read(running):
        pass
    assert running.result()["c"].result_text == f"Error: {REFUSED}"


async def test_user_is_asked_about_each_change_by_the_agent_in_a_question_of_its_own() -> None:
    asked: list[str] = []

    async def agree(question: InputRequest) -> bool:
        asked.append(question.request_id)
        return True

    events = EventBuffer()
    runner = CallRunner(events, CallContext(approval=Approval(answer_to=agree)))

    async def run() -> None:
        call = ToolCall("c", "buy", {"thing": "a harp"})
        await runner.start(call)
        await runner.approve(call)
        for thing in ("a piano", "an organ", "an organ", "a piano"):
            await runner.change_arguments("c", {"thing": thing})

    running = asyncio.create_task(run())
    async for _ in events.read(running):
        pass
    running.result()
    assert len(asked) == len(set(asked)) == 4
