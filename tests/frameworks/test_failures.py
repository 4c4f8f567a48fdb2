"""Exceptions of frameworks for failures of their model's endpoint become Callboard's errors."""

import subprocess
import sys
from typing import Any

import httpx
import openai
import pytest

from callboard.errors import (
    ModelCutOff,
    ModelError,
    ModelRateLimited,
    ModelRefused,
    ModelTimeout,
    ModelUnauthorized,
    ModelUnreachable,
)
from callboard.frameworks.failures import model_error

REQUEST: Any = httpx.Request("POST", "http://127.0.0.1/v1/chat/completions")
KEY = "sk-very-secret"


class Wrapped(Exception):
    """An exception like those with which frameworks wrap their clients' exceptions."""

    def __init__(self, message: str, status_code: int | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (Wrapped(f"Incorrect API key provided: {KEY}", 401), ModelUnauthorized),
        (Wrapped("slow down", 429), ModelRateLimited),
        (caused(Wrapped("failed"), Wrapped("no such picture", 422)), ModelRefused),
        (caused(Wrapped("failed", 502), openai.APITimeoutError(REQUEST)), ModelTimeout),
        (caused(Wrapped("failed"), openai.APIConnectionError(request=REQUEST)), ModelUnreachable),
        (caused(Wrapped("failed"), httpx.ReadTimeout("late")), ModelTimeout),
        (caused(Wrapped("failed"), httpx.RemoteProtocolError("cut")), ModelCutOff),
        (
            caused(Wrapped("failed"), httpx.RemoteProtocolError("Server disconnected without sending a response.")),
            ModelUnreachable,
        ),
        (openai.APIError("boom", REQUEST, body=None), ModelError),
        (caused(Wrapped("failed"), ModelTimeout("It did not answer.")), ModelTimeout),
    ],
)
def test_most_specific_cause_decides_error_class(raised: Exception, expected: type[ModelError]) -> None:
    failure = model_error(raised, "travel")
    assert type(failure) is expected
    assert KEY not in str(failure)


def test_refusal_keeps_upstream_code() -> None:
    response: Any = httpx.Response(400, request=REQUEST)
    too_long = openai.BadRequestError("too long", response=response, body={"code": "context_length_exceeded"})
    failure = model_error(caused(Wrapped("failed"), too_long), "travel")
    assert isinstance(failure, ModelRefused)
    assert failure.upstream_code == "context_length_exceeded"


def test_other_exception_is_no_model_error_unless_always() -> None:
    assert model_error(ValueError("a bug"), "travel") is None
    known = model_error(ValueError("a bug"), "travel", always=True)
    assert type(known) is ModelError
    assert "'travel'" in str(known)


OWN_ADAPTER = """
import sys

sys.modules.update(BLOCKED)
from callboard.frameworks.adapter import FrameworkAgent
from callboard.frameworks.failures import model_error
from callboard.frameworks.openai_client import rejecting_cut_off_answers


class Adapter(FrameworkAgent):
    async def run_turn(self, agent, turn): ...
    async def run_task(self, agent, turn): ...


assert not sys.modules.get("openai")
Adapter(lambda context: None, "own", "", "")
assert model_error(ValueError("a bug"), "own") is None
"""

HALF_AN_ANSWER = """
import httpx2
import openai

response = httpx2.Response(200, content=CONTENT, request=httpx2.Request("POST", "http://127.0.0.1"))
stream = openai.Stream(cast_to=object, response=response, client=openai.OpenAI(api_key="none"))
with rejecting_cut_off_answers():
    try:
        list(stream)
    except openai.APIConnectionError as error:
        print(type(model_error(error, "own")).__name__)
"""


def run(code: str, **values: object) -> str:
    """Return the output of a new Python process, because this process has already imported the frameworks."""
    given = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    command = [sys.executable, "-c", given + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.strip()


def test_an_adapter_works_without_openais_client() -> None:
    run(OWN_ADAPTER, BLOCKED={"openai": None, "httpx2": None})


@pytest.mark.parametrize(
    ("ending", "seen"), [("", "ModelCutOff"), ("data: [DONE]\n\n", ""), ('data: {"finish_reason": "stop"}\n\n', "")]
)
def test_openai_client_imported_during_turn_is_patched(ending: str, seen: str) -> None:
    content = 'data: {"choices": [{"delta": {"content": "half"}}]}\n\n' + ending
    assert run(OWN_ADAPTER + HALF_AN_ANSWER, BLOCKED={}, CONTENT=content.encode()) == seen
