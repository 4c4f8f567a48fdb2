"""The doctor's check of the model's endpoint: reachable, key accepted, model exists, calls a tool natively."""

import asyncio
import json
import socket

import pytest

from callboard._cli import build_parser
from callboard._cli.doctor import run
from callboard.models import LocalEndpoint
from tests.cli.conftest import Diagnosis, Doctor
from tests.fakes.http_answer import answering
from tests.fakes.model_servers import llama_cpp
from tests.fakes.openai_server import OpenAIServer, Page, Refusal, Script, Silence, call, chunks, finish, text

CALLS = chunks(call("get_weather", '{"city": "Paris"}', call_id="c"), finish("tool_calls"))
TALKS = chunks(text("It is sunny in Paris."), finish("stop"))


async def examine(doctor: Doctor, script: Script, models: list[str], *arguments: str, **settings: str) -> Diagnosis:
    async with OpenAIServer(script, models=models) as server:
        given = {"MODEL_BASE_URL": server.base_url, "MODEL_API_KEY": "sk-the-key", **settings}
        return await asyncio.to_thread(doctor, *arguments, **given)


async def test_a_model_that_calls_the_tool_is_correct(doctor: Doctor) -> None:
    async with OpenAIServer([CALLS], models=["m"]) as server:
        found = await asyncio.to_thread(doctor, MODEL_BASE_URL=server.base_url, MODEL="m")
    assert found.of("model") == [
        "✓ model: the endpoint answers and serves m",
        "✓ model: the key is accepted; calls a tool natively: yes",
    ]
    assert server.asked == []
    [asked] = server.requests
    assert len(asked["tools"]) == 1
    assert "tool_choice" not in asked


async def test_a_model_that_answers_with_text_is_reported_with_the_setting(doctor: Doctor) -> None:
    [line] = (await examine(doctor, [TALKS], ["m"])).broken
    assert line == (
        "✗ model: calls a tool natively: no, in one probe → "
        "set CALLBOARD_TOOL_FORMAT=react, or CALLBOARD_REACT_MODELS=m"
    )


@pytest.mark.parametrize(
    ("name", "pages", "said"),
    [
        (
            "m",
            llama_cpp("{{- '<TOOLCALL>[' -}}"),
            "✓ model: auto reads calls in its text as nemotron_nano: its chat template (llama.cpp) says so",
        ),
        ("qwen3:8b", {}, "✓ model: auto reads calls in its text as hermes: its name says so"),
        (
            "m",
            {},
            "– model: neither its chat template nor its name shows how it writes calls; auto reads only a call at the "
            "end of an answer → set CALLBOARD_TOOL_FORMAT to the model's family if you know it",
        ),
    ],
    ids=["template", "name", "nothing"],
)
async def test_for_a_model_that_answers_with_text_the_syntax_of_auto_is_reported(
    doctor: Doctor, name: str, pages: dict[str, Page], said: str
) -> None:
    async with OpenAIServer([TALKS], models=[name], pages=pages) as server:
        found = await asyncio.to_thread(doctor, MODEL_BASE_URL=server.base_url, MODEL=name)
    assert found.of("model")[-1] == said


@pytest.mark.parametrize("setting", [{"TOOL_FORMAT": "native"}, {"TOOL_FORMAT": "react"}])
async def test_with_a_chosen_format_the_endpoint_is_not_asked_for_the_template(
    doctor: Doctor, setting: dict[str, str]
) -> None:
    async with OpenAIServer([TALKS], models=["m"], pages=llama_cpp("{{- '<TOOLCALL>[' -}}")) as server:
        await asyncio.to_thread(doctor, MODEL_BASE_URL=server.base_url, MODEL="m", **setting)
    assert server.asked == []


@pytest.mark.parametrize("setting", [{"TOOL_FORMAT": "react"}, {"REACT_MODELS": "m*"}])
async def test_with_another_format_a_model_need_not_call_natively(doctor: Doctor, setting: dict[str, str]) -> None:
    found = await examine(doctor, [TALKS], ["m"], MODEL="m", **setting)
    assert found.broken == []
    assert "calls a tool natively: no, but react needs no native calls" in found.of("model")[-1]


async def test_an_endpoint_that_refuses_tools_counts_as_not_calling_natively(doctor: Doctor) -> None:
    [line] = (await examine(doctor, [Refusal(400, "m does not support tools")], ["m"], MODEL="m")).broken
    assert "calls a tool natively: no" in line


async def test_a_missing_model_is_reported_with_the_available_models(doctor: Doctor) -> None:
    [line] = (await examine(doctor, [], ["a", "b"], MODEL="gone")).broken
    assert line == "✗ model: the endpoint does not serve gone → set CALLBOARD_MODEL to one of these: a, b"


async def test_a_key_that_only_the_completion_refuses_is_reported_and_not_shown(doctor: Doctor) -> None:
    found = await examine(doctor, [Refusal(401, "Incorrect API key: sk-the-key")], ["m"])
    [line] = found.broken
    assert "refused the key (401)" in line
    assert "CALLBOARD_MODEL_API_KEY" in line
    assert "sk-the-key" not in "\n".join(found.lines)


def test_a_refused_key_is_reported(doctor: Doctor) -> None:
    with answering(401, '{"error": {"message": "no"}}') as port:
        [line] = doctor(MODEL_BASE_URL=f"http://127.0.0.1:{port}/v1").broken
    assert "refused the key (401)" in line


def test_an_unreachable_endpoint_is_reported(doctor: Doctor) -> None:
    [line] = doctor(MODEL_BASE_URL="http://127.0.0.1:9/v1").broken
    assert "cannot be reached" in line


def test_an_endpoint_that_does_not_answer_is_reported_after_the_timeout(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        [line] = doctor("--timeout", "0.5", MODEL_BASE_URL=url).broken
    assert "did not answer within 0.5 s" in line


async def test_an_answer_that_does_not_begin_or_end_is_reported_after_the_timeout(doctor: Doctor) -> None:
    [line] = (await examine(doctor, [Silence()], ["m"], "--timeout", "1")).broken
    assert "did not answer within" in line or "did not answer in time" in line
    [line] = (await examine(doctor, [chunks(text("Well"), ending="hang")], ["m"], "--timeout", "1")).broken
    assert "did not answer within" in line or "did not answer in time" in line


async def test_an_endpoint_that_lists_no_models_is_probed_anyway(doctor: Doctor) -> None:
    found = await examine(doctor, [CALLS], [], MODEL="m")
    assert found.broken == []
    assert found.of("model")[-1].endswith("natively: yes")


def test_a_web_page_is_reported_as_no_endpoint(doctor: Doctor) -> None:
    with answering(200, "<html>", {"Content-Type": "text/html"}) as port:
        found = doctor(MODEL_BASE_URL=f"http://127.0.0.1:{port}")
    assert len(found.broken) == 1


def test_without_a_model_setting_the_local_model_for_serve_is_reported(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CALLBOARD_DATA_DIR", str(doctor.folder))
    monkeypatch.setenv("CALLBOARD_PORT", "0")
    options = build_parser().parse_args(["doctor", "--timeout", "5"])
    with answering(200, json.dumps({"data": [{"id": "qwen3"}]}), {"Content-Type": "application/json"}) as port:
        run(options, endpoints=[LocalEndpoint("Ollama", port)])
    said = capsys.readouterr().out
    assert "– model: none is set; Ollama on this machine serves qwen3 → callboard serve uses it; choose another" in said
    assert "✓ model: the endpoint answers and serves qwen3" in said
