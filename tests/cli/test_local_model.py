"""With no endpoint set, `serve` looks for a model on this machine: once, quietly, and for real models alone."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from callboard._cli.serve import choose_local_model, make_default_model
from callboard.models import LOCAL_ENDPOINTS, LocalEndpoint, ModelRequest, TextDelta, find_local_model
from callboard.settings import Settings
from tests.fakes.http_answer import answering
from tests.fakes.openai_server import OpenAIServer, chunks, finish, text
from tests.processes import environment, read_start


def models(*names: str, **fields: str) -> str:
    return json.dumps({"object": "list", "data": [{"id": name, **fields} for name in names]})


def at(port: int, program: str = "Ollama") -> LocalEndpoint:
    return LocalEndpoint(program, port)


def test_the_ports_of_the_four_programs_are_tried_in_order() -> None:
    assert [(one.program, one.port) for one in LOCAL_ENDPOINTS] == [
        ("Ollama", 11434),
        ("LM Studio", 1234),
        ("vLLM", 8000),
        ("llama.cpp", 8080),
    ]


async def test_the_first_endpoint_with_a_model_is_chosen() -> None:
    with answering(200, models()) as empty, answering(200, models("b")) as second, answering(200, models("c")) as third:
        found = await find_local_model([at(empty), at(second, "vLLM"), at(third)])
    assert found is not None
    assert (found.endpoint, found.name) == (at(second, "vLLM"), "b")


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (200, "<!doctype html><title>Open WebUI</title>", {"Content-Type": "text/html"}),
        (401, models("m"), {}),
        (200, models(), {}),
        (200, models("demo", owned_by="callboard"), {}),
        (200, models("nomic-embed-text", "mxbai-embed-large"), {}),
        (200, models("m") + " " * 1_000_000, {}),
        (200, '{"data": "m"}', {}),
        (200, '[{"id": "m"}]', {}),
        (200, '{"data": [{"id": 1}, {"id": ""}, "m"]}', {}),
        (200, "[" * 100_000, {}),
        (200, "", {}),
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


async def test_an_endpoint_that_does_not_answer_does_not_delay_the_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, answering(200, models("m")) as port:
        found = await find_local_model([at(silent.getsockname()[1]), at(port)])
    assert found is not None
    assert found.endpoint == at(port)


async def test_an_embedding_model_is_skipped() -> None:
    with answering(200, models("nomic-embed-text:latest", "qwen3:8b")) as port:
        found = await find_local_model([at(port)])
    assert found is not None
    assert found.name == "qwen3:8b"


@pytest.mark.parametrize(("wanted", "expected"), [("b", "b"), ("c", "c:latest"), ("d", None)])
async def test_only_the_named_model_is_chosen(wanted: str, expected: str | None) -> None:
    with answering(200, models("a")) as first, answering(200, models("a", "b", "c:latest")) as second:
        found = await find_local_model([at(first), at(second)], wanted)
    assert (found and found.name) == expected


def log_of_serve(folder: Path, ports: list[int], **settings: str) -> tuple[list[dict[str, str]], list[str]]:
    """The log of `serve` about its model until it listens, the endpoints at other ports, and the ids of its agents."""
    code = (
        "import sys; from callboard._cli.serve import serve; from callboard.models import LocalEndpoint; "
        "sys.exit(serve([LocalEndpoint('Ollama', int(port)) for port in sys.argv[1:]]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, ports)],
        cwd=folder,
        env=environment(folder, **({"FIND_MODEL": "true"} | settings)),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        events = read_start(process.stderr)
        entries = [event for event in events if event["event"] not in ("agent_left_out", "no_api_key")]
        agents = httpx.get(f"{entries[-1]['url']}/v1/models").json()["data"]
    finally:
        process.kill()
        process.communicate()
    return entries, [agent["id"] for agent in agents]


def test_serve_logs_the_found_model_and_how_to_choose_another(tmp_path: Path) -> None:
    seen: list[str] = []
    with answering(200, models("qwen3:8b"), seen=seen) as port:
        entries, agents = log_of_serve(tmp_path, [port], MODEL_API_KEY="sk-of-another-endpoint")
    [line] = [entry for entry in entries if entry["event"] != "listening"]
    assert (line["event"], line["level"]) == ("model_found", "info")
    assert (line["program"], line["model"]) == ("Ollama", "qwen3:8b")
    assert line["base_url"] == f"http://127.0.0.1:{port}/v1"
    assert "CALLBOARD_MODEL_BASE_URL and CALLBOARD_MODEL" in line["hint"]
    assert "demo" in agents
    assert len(seen) == 1
    assert "sk-of-another-endpoint" not in seen[0]


def test_without_a_local_model_serve_logs_it_and_serves_the_demo(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    entries, agents = log_of_serve(tmp_path, [port])
    assert [(entry["event"], entry["level"]) for entry in entries] == [
        ("no_model_found", "info"),
        ("listening", "info"),
    ]
    assert "demo" in agents


@pytest.mark.parametrize("settings", [{"FIND_MODEL": "false"}, {"MODEL_BASE_URL": "http://127.0.0.1:9/v1"}])
@pytest.mark.slow
def test_with_find_model_false_no_port_is_tried(tmp_path: Path, settings: dict[str, str]) -> None:
    seen: list[str] = []
    with answering(200, models("m"), seen=seen) as port:
        entries, _ = log_of_serve(tmp_path, [port], **settings)
    assert [entry["event"] for entry in entries] == ["listening"]
    assert seen == []


async def test_the_model_that_was_found_answers(tmp_path: Path) -> None:
    async with OpenAIServer([chunks(text("Hello."), finish("stop"))], models=["m"]) as server:
        endpoint = at(int(server.base_url.rpartition(":")[2].partition("/")[0]))
        model = make_default_model(await choose_local_model(Settings(data_dir=tmp_path), [endpoint]))
        deltas = [delta async for delta in model.stream(ModelRequest([{"role": "user", "content": "Hi"}]))]
        await model.aclose()
    assert TextDelta("Hello.") in deltas
    assert server.requests[0]["model"] == "m"
