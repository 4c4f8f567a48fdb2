"""With no endpoint set, `serve` looks for a model on this machine: once, quietly, and for real models alone."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from callboard._cli.serve import choose_local_model, make_default_model
from callboard.models import ModelRequest, TextDelta
from callboard.models.local_endpoints import LocalEndpoint, find_local_model
from callboard.settings import Settings
from tests.fakes.http_answer import answering
from tests.fakes.openai_server import OpenAIServer, chunks, finish, text


def models(*names: str, **fields: str) -> str:
    return json.dumps({"object": "list", "data": [{"id": name, **fields} for name in names]})


def at(port: int, program: str = "Ollama") -> LocalEndpoint:
    return LocalEndpoint(program, port)


async def test_the_first_endpoint_with_a_model_is_chosen() -> None:
    served = models("nomic-embed-text:latest", "b")
    with answering(200, models()) as empty, answering(200, served) as second, answering(200, models("c")) as third:
        found = await find_local_model([at(empty), at(second, "vLLM"), at(third)])
    assert found is not None
    assert (found.endpoint, found.name) == (at(second, "vLLM"), "b")


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (200, "<!doctype html><title>Open WebUI</title>", {"Content-Type": "text/html"}),
        (401, models("m"), {}),
        (200, models("demo", owned_by="callboard"), {}),
        (200, models("nomic-embed-text", "mxbai-embed-large"), {}),
        (200, models("m") + " " * 1_000_000, {}),
        (200, '{"data": "m"}', {}),
        (200, '{"data": [{"id": 1}, {"id": ""}, "m"]}', {}),
        (200, "[" * 100_000, {}),
    ],
)
async def test_a_program_that_is_no_model_endpoint_is_skipped(status: int, body: str, headers: dict[str, str]) -> None:
    with answering(status, body, headers) as port:
        assert await find_local_model([at(port)]) is None


async def test_a_redirect_is_not_followed() -> None:
    seen: list[str] = []
    with answering(200, models("m"), seen=seen) as target:
        location = {"Location": f"http://127.0.0.1:{target}/v1/models"}
        with answering(302, "", location) as port:
            assert await find_local_model([at(port)]) is None
    assert seen == []


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(200, models("the proxy's")) as proxy, answering(200, models("m")) as port:
        for name in ("http_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy}")
        found = await find_local_model([at(port)])
    assert found is not None
    assert found.name == "m"


@pytest.mark.parametrize(("wanted", "expected"), [("b", "b"), ("c", "c:latest"), ("d", None)])
async def test_only_the_named_model_is_chosen(wanted: str, expected: str | None) -> None:
    with answering(200, models("a")) as first, answering(200, models("a", "b", "c:latest")) as second:
        found = await find_local_model([at(first), at(second)], wanted)
    assert (found and found.name) == expected


async def test_the_choice_is_logged_with_advice_and_gets_no_key_of_another_endpoint(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, model_api_key=SecretStr("sk-of-another-endpoint"))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nothing = at(closed.getsockname()[1])
    with answering(200, models("qwen3:8b")) as port, capture_logs() as log:
        assert await choose_local_model(settings, [nothing]) is settings
        chosen = await choose_local_model(settings, [at(port)])
    assert (chosen.model_base_url, chosen.model) == (f"http://127.0.0.1:{port}/v1", "qwen3:8b")
    assert chosen.model_api_key is None
    missing, found = log
    assert (missing["event"], missing["log_level"]) == ("no_model_found", "info")
    assert (found["event"], found["log_level"], found["program"]) == ("model_found", "info", "Ollama")
    assert "CALLBOARD_MODEL_BASE_URL and CALLBOARD_MODEL" in found["hint"]


@pytest.mark.parametrize("fields", [{"find_model": False}, {"model_base_url": "http://127.0.0.1:9/v1"}])
async def test_no_port_is_tried_if_the_settings_say_so(tmp_path: Path, fields: dict[str, Any]) -> None:
    seen: list[str] = []
    settings = Settings(data_dir=tmp_path, **fields)
    with answering(200, models("m"), seen=seen) as port:
        assert await choose_local_model(settings, [at(port)]) is settings
    assert seen == []


async def test_the_model_that_was_found_answers(tmp_path: Path) -> None:
    async with OpenAIServer([chunks(text("Hello."), finish("stop"))], models=["m"]) as server:
        endpoint = at(int(server.base_url.rpartition(":")[2].partition("/")[0]))
        model = make_default_model(await choose_local_model(Settings(data_dir=tmp_path), [endpoint]))
        deltas = [delta async for delta in model.stream(ModelRequest([{"role": "user", "content": "Hi"}]))]
        await model.aclose()
    assert TextDelta("Hello.") in deltas
    assert server.requests[0]["model"] == "m"
