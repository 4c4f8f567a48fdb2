"""Questions of a run whose agent uses an id twice."""

import asyncio

from callboard.runs.call_tracker import CallIds, CallTracker
from callboard.runs.inputs import Inputs
from callboard.runs.log import EventLog
from callboard.storage import GivenAnswer
from callboard_protocol import InputRequest


async def test_an_answer_that_is_read_again_does_not_answer_a_later_question() -> None:
    inputs = Inputs("run", EventLog(), None, CallTracker(CallIds()), timeout_seconds=60.0)
    question = InputRequest(request_id="q", kind="confirmation", title="Delete it?")
    assert inputs.open(question)
    waiting = asyncio.create_task(inputs.wait(question))
    await inputs.answer("q", GivenAnswer(True))
    assert await waiting is True
    inputs.accept({"q": GivenAnswer(True)})
    assert inputs.open(question)
