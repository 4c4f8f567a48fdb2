"""Validation of requests."""

import pytest
from pydantic import ValidationError

from callboard_protocol import InputAnswer, InputRequest, RunRequest, Source


def test_a_request_needs_an_agent_and_messages_and_nothing_else() -> None:
    request = RunRequest.model_validate({"agent": "demo", "messages": [{"role": "user", "content": "hi"}]})
    assert (request.chat_id, request.message_id, request.user, request.task, request.run_id) == (None,) * 5
    assert request.messages[0].to_openai() == {"role": "user", "content": "hi"}


def test_a_list_is_kept_as_a_tuple() -> None:
    source = Source(source={}, document=["a"], metadata=[{"b": 1}])
    assert source == Source(source={}, document=("a",), metadata=({"b": 1},))


def test_tool_calls_and_unknown_fields_of_a_message_are_passed_on() -> None:
    messages = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{ }"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "42"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}], "name": "ann"},
    ]
    request = RunRequest.model_validate({"agent": "demo", "messages": messages})
    assert [message.to_openai() for message in request.messages] == messages


@pytest.mark.parametrize(
    "change",
    [
        {"agent": ""},
        {"messages": []},
        {"messages": [{"role": "wizard", "content": "hi"}]},
        {"run_id": "../etc"},
        {"chat_id": "a\nb"},
        {"user": {"name": "nobody"}},
    ],
)
def test_a_request_that_does_not_fit_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RunRequest.model_validate({"agent": "demo", "messages": [{"role": "user", "content": "hi"}], **change})


@pytest.mark.parametrize("request_id", ["", "q" * 641, "q\n", "q\0"])
def test_a_question_has_an_id_that_its_answer_can_name(request_id: str) -> None:
    with pytest.raises(ValidationError, match="request_id"):
        InputRequest(request_id=request_id, kind="input", title="Which?")
    with pytest.raises(ValidationError, match="request_id"):
        InputAnswer(request_id=request_id)
