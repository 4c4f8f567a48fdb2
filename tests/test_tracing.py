"""A real receiver gets the spans of real runs, in the trace of their requests."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import processes
from tests.fakes.openai_server import Answer, OpenAIServer, Refusal, call, chunks, finish, text, usage
from tests.fakes.otlp_receiver import OtlpReceiver, Span
from tests.serving import request

pytestmark = pytest.mark.timeout(120)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"
SECRET = "sk-a-secret-of-the-model-1234"
PICTURE = [{"role": "user", "content": "picture"}]
"""The demo's shortest scene."""
SAID = ("what nobody but us should read", "a result that is private", "words of the answer")

AGENTS = f'''
import structlog
from opentelemetry import trace
from opentelemetry.propagate import inject
from callboard import Agent, Skill, register, tool

@tool
def told(words: str) -> str:
    """Say of which trace it is."""
    carrier = {{}}
    inject(carrier)
    structlog.get_logger().info("tool_looked")
    with trace.get_tracer("a library").start_as_current_span(words):
        pass
    return f"{{carrier['traceparent']}} {SAID[1]}"

@tool
async def fail() -> str:
    """Fail."""
    raise ValueError("{SAID[1]}")

tools = Skill("tools", "Tell.", tools=[told, fail])
register(Agent("teller", name="Teller", skills=[tools]))
'''
NO_SDK = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("opentelemetry.sdk"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
"""
UNREADY_AGENT = """
import asyncio
from dataclasses import dataclass
from callboard import register
from callboard_protocol import Message

class Unready:
    agent_id = "teller"
    name = "Teller"
    description = ""
    on_owner_loss = "end"

    async def run(self, context):
        yield Message(content="Once ")
        await asyncio.Event().wait()

register(Unready())
"""


class Traced:
    """A server whose spans go to a receiver; they are all there once it is left."""

    def __init__(self, url: str, process: processes.Command) -> None:
        self.url = url
        self.process = process
        self.log: list[dict[str, Any]] = []

    def run(self, *, headers: Mapping[str, str] | Sequence[tuple[str, str]] = (), **fields: Any) -> str:
        body = request(agent="teller", messages=[{"role": "user", "content": SAID[0]}], **fields)
        answer = httpx.post(f"{self.url}/v1/runs", json=body, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.text

    @contextmanager
    def running(self, words: str, *, headers: Mapping[str, str] | None = None, **fields: Any) -> Iterator[httpx.Client]:
        """Enter the block when the run `r` has streamed these words; then read its stream to the end."""
        body = request(agent="teller", run_id="r", **fields)
        with (
            httpx.Client(base_url=self.url, timeout=60) as client,
            client.stream("POST", "/v1/runs", json=body, headers=headers) as response,
        ):
            lines = response.iter_lines()
            next(line for line in lines if words in line)
            yield client
            # The block may have killed the server.
            with suppress(httpx.RemoteProtocolError):
                list(lines)

    def follow(self) -> str:
        """The events of the run `r`, which another server has begun, until its end."""
        return httpx.get(f"{self.url}/v1/runs/r/events", timeout=60).text


@contextmanager
def traced(folder: Path, model: OpenAIServer, agent: str = AGENTS, **settings: str) -> Iterator[Traced]:
    agents = folder / "teller.py"
    agents.write_text(agent)
    own = {"AGENTS": str(agents), "MODEL_BASE_URL": model.base_url, "MODEL": "m", "MODEL_API_KEY": SECRET}
    with processes.serving(folder / "data", **own, **settings) as (url, process):
        server = Traced(url, process)
        yield server
        process.terminate()
        assert process.stderr is not None
        # `communicate` with a timeout would leave out the lines that came in one piece with the address.
        server.log = [json.loads(line) for line in process.stderr if line.startswith("{")]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        yield receiver


def named(spans: Sequence[Span], name: str) -> Span:
    [found] = [span for span in spans if span.name == name]
    return found


def called(*arguments: str) -> list[Answer]:
    """The answers of a model that calls the tool with these arguments at once, then says something."""
    calls = [call("told", one, index=number, call_id=f"c{number}") for number, one in enumerate(arguments)]
    return [
        chunks(*calls, finish("tool_calls"), usage(10, 5)),
        chunks(text(SAID[2]), finish("stop"), usage(20, 3)),
    ]


@dataclass(frozen=True)
class Ended:
    """A run on a server that has stopped since: its answer and the log."""

    answer: str
    log: Sequence[Mapping[str, Any]]


async def run_once(
    folder: Path,
    script: Sequence[Answer],
    agent: str = AGENTS,
    *,
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    **fields: Any,
) -> Ended:
    """Run an agent on a server whose model answers as in the script."""
    async with OpenAIServer(script) as model:

        def play() -> tuple[str, Traced]:
            with traced(folder, model, agent) as server:
                return server.run(headers=headers, **fields), server

        # In a thread, because the model's server is in this event loop.
        answer, server = await asyncio.to_thread(play)
    return Ended(answer, server.log)


async def test_a_run_is_a_span_with_its_requests_and_its_calls_in_it(tmp_path: Path, receiver: OtlpReceiver) -> None:
    script = called('{"words": "a"}', '{"words": "b"}')
    await run_once(tmp_path, script, run_id="r", chat_id="c", message_id="m", user={"id": "ann"})
    spans = receiver.spans
    assert [span.name for span in spans] == [
        "invoke_agent teller",
        "chat m",
        "execute_tool told",
        "execute_tool told",
        "chat m",
    ]
    run, first, one, other, second = spans
    assert run.parent_id == ""
    assert {span.parent_id for span in (first, one, other, second)} == {run.span_id}
    assert {span.trace_id for span in spans} == {run.trace_id}
    assert [span.kind for span in spans] == ["internal", "client", "internal", "internal", "client"]
    assert run.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "openai",
        "gen_ai.agent.id": "teller",
        "gen_ai.agent.name": "teller",
        "gen_ai.conversation.id": "c",
        "user.id": "ann",
        "callboard.run.id": "r",
        "gen_ai.response.finish_reasons": ["stop"],
    }
    time_to_first_chunk = first.attributes["gen_ai.response.time_to_first_chunk"]
    assert 0 < time_to_first_chunk <= (first.ended - first.began) / 1e9
    assert first.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.response.finish_reasons": ["tool_calls"],
        "gen_ai.response.time_to_first_chunk": time_to_first_chunk,
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
    }
    assert one.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "told",
        "gen_ai.tool.call.id": "c0",
        "gen_ai.tool.type": "function",
    }
    assert run.began <= first.began <= first.ended <= one.began <= other.began <= second.began
    assert second.ended <= run.ended
    assert not [span for span in spans if span.is_error]
    assert run.scope == "callboard"
    assert run.schema_url == "https://opentelemetry.io/schemas/1.41.0"
    assert run.resource["service.name"] == "callboard"


async def test_the_trace_of_the_request_is_continued(tmp_path: Path, receiver: OtlpReceiver) -> None:
    headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=1", "baggage": "of=nobody"}
    ended = await run_once(tmp_path, called('{"words": "a"}'), run_id="r", headers=headers)
    run, *_ = receiver.spans
    assert (run.trace_id, run.parent_id) == (TRACE, CALLER)
    # The tool looked for itself.
    assert run.traceparent in ended.answer
    of_run = {line["event"]: line.get("trace_id") for line in ended.log if line.get("run_id") == "r"}
    assert of_run == dict.fromkeys(("run_started", "call", "tool_looked", "run_ended"), TRACE)


async def test_spans_have_no_contents_and_those_of_other_libraries_are_not_sent(
    tmp_path: Path, receiver: OtlpReceiver
) -> None:
    script: list[Answer] = [
        chunks(call("told", json.dumps({"words": SAID[0]}), call_id="c0"), finish("tool_calls")),
        chunks(call("fail", "{}", call_id="c1"), finish("tool_calls")),
        Refusal(400, SAID[0]),
    ]
    await run_once(tmp_path, script, chat_id="c")
    sent = b"".join(receiver.bodies)
    assert len(receiver.spans) == 6
    for said in SAID:
        assert said.encode() not in sent


async def test_the_name_of_an_invented_tool_counts_as_content(tmp_path: Path, receiver: OtlpReceiver) -> None:
    script = [
        chunks(call(SAID[0], "{}", call_id="c0"), finish("tool_calls")),
        chunks(text(SAID[2]), finish("stop")),
    ]
    await run_once(tmp_path, script)
    [made_up] = [span for span in receiver.spans if span.attributes.get("error.type") == "unknown_tool"]
    assert made_up.name == "execute_tool"
    assert made_up.attributes["gen_ai.tool.name"] == "unknown"
    assert not [said for said in SAID if said.encode() in b"".join(receiver.bodies)]


async def test_failures_are_failed_spans_with_the_error_code(tmp_path: Path, receiver: OtlpReceiver) -> None:
    script: list[Answer] = [chunks(call("fail", "{}", call_id="c0"), finish("tool_calls")), Refusal(401)]
    await run_once(tmp_path, script)
    run, first, tool, second = receiver.spans
    assert [span.is_error for span in (run, first, tool, second)] == [True, False, True, True]
    assert tool.attributes["error.type"] == "tool_failed"
    assert second.attributes["error.type"] == "ModelUnauthorized"
    assert run.attributes["error.type"] == "model_unauthorized"
    assert {span.status_message for span in (run, tool, second)} == {""}


async def test_a_run_that_is_cancelled_ends_all_its_spans_and_has_not_failed(
    tmp_path: Path, receiver: OtlpReceiver
) -> None:
    async with OpenAIServer([chunks(text("Once "), ending="hang")]) as model:

        def play() -> None:
            with traced(tmp_path, model) as server, server.running("Once") as client:
                client.post("/v1/runs/r/cancel")

        await asyncio.to_thread(play)
    run, asked = receiver.spans
    assert run.attributes["gen_ai.response.finish_reasons"] == ["cancelled"]
    assert asked.attributes["error.type"] in ("GeneratorExit", "CancelledError")
    assert not run.is_error
    assert not asked.is_error


async def test_a_call_that_its_run_stops_has_not_failed_either(tmp_path: Path, receiver: OtlpReceiver) -> None:
    agent = AGENTS.replace("raise ValueError", "import asyncio; await asyncio.Event().wait(); raise ValueError")
    async with OpenAIServer([chunks(call("fail", "{}", call_id="c0"), finish("tool_calls"))]) as model:

        def play() -> None:
            with traced(tmp_path, model, agent) as server, server.running("tool_call_start") as client:
                client.post("/v1/runs/r/cancel")

        await asyncio.to_thread(play)
    stopped = named(receiver.spans, "execute_tool fail")
    assert stopped.attributes["error.type"] == "cancelled"
    assert not [span for span in receiver.spans if span.is_error]


NO_TRACES = [
    [],
    [("traceparent", "00-nonsense")],
    [("traceparent", TRACEPARENT.upper())],
    [("traceparent", f"ff{TRACEPARENT[2:]}")],
    [("traceparent", f"{TRACEPARENT}-more")],
    [("traceparent", f"00-{'0' * 32}-{CALLER}-01")],
    [("traceparent", f"00-{TRACE}-{'0' * 16}-01")],
    [("traceparent", TRACEPARENT), ("traceparent", TRACEPARENT.replace("4b", "5b"))],
    [("tracestate", "vendor=1")],
]


async def test_a_request_of_no_trace_begins_one(tmp_path: Path, receiver: OtlpReceiver) -> None:
    async with OpenAIServer([chunks(text("Hi."), finish("stop"))] * len(NO_TRACES)) as model:

        def play() -> None:
            with traced(tmp_path, model) as server:
                for headers in NO_TRACES:
                    server.run(headers=headers)

        await asyncio.to_thread(play)
    runs = [span for span in receiver.spans if span.name == "invoke_agent teller"]
    assert [run.parent_id for run in runs] == [""] * len(NO_TRACES)


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none"), ("OTEL_TRACES_SAMPLER", "always_off")],
)
async def test_it_is_configured_by_open_telemetrys_own_variables(
    name: str, value: str, tmp_path: Path, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    await run_once(tmp_path, [chunks(text("Hi."), finish("stop"))])
    assert receiver.bodies == []


async def test_a_dot_env_file_is_as_good_as_the_environment_and_its_keys_are_secret(
    tmp_path: Path, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ".env").write_text(
        f"OTEL_EXPORTER_OTLP_ENDPOINT={receiver.url}\n"
        "OTEL_SERVICE_NAME=the-kitchen\n"
        "OTEL_EXPORTER_OTLP_HEADERS=Authorization=Basic%20cGstbGY6c2stbGY=\n"
    )
    script = [chunks(text("The key is cGstbGY6c2stbGY=."), finish("stop"))]
    ended = await run_once(tmp_path, script)
    assert "cGstbGY6c2stbGY=" not in ended.answer
    assert receiver.headers[0]["authorization"] == "Basic cGstbGY6c2stbGY="
    assert receiver.spans[0].resource["service.name"] == "the-kitchen"


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "pigeon"}, r"OTEL_TRACES_EXPORTER: .*'pigeon'"),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'grpc' .*http/protobuf"),
    ],
)
def test_a_variable_that_cannot_be_followed_ends_the_server_with_words(
    variables: dict[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", **variables}.items():
        monkeypatch.setenv(name, value)
    ended = processes.run(tmp_path, "serve")
    assert ended.returncode == 1
    assert re.search(words, ended.stderr)
    assert "Traceback" not in ended.stderr


def test_without_the_sdk_runs_work_and_the_log_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    (tmp_path / "sitecustomize.py").write_text(NO_SDK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    environment = processes.environment(tmp_path / "data")
    with subprocess.Popen([*processes.COMMAND, "serve"], env=environment, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        said = processes.read_start(server.stderr)
        answer = httpx.post(f"{said[-1]['url']}/v1/runs", json=request(agent="demo", messages=PICTURE), timeout=60)
        server.kill()
    assert '"type":"done"' in answer.text
    [warning] = [line for line in said if line["event"] == "traces_not_exported"]
    assert "pip install 'callboard[otel]'" in warning["hint"]


@pytest.mark.slow
def test_a_receiver_that_does_not_answer_delays_neither_runs_nor_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")
        with processes.serving(tmp_path / "data") as (url, process):
            answer = httpx.post(f"{url}/v1/runs", json=request(agent="demo", messages=PICTURE), timeout=60)
            assert '"type":"done"' in answer.text
            process.terminate()
            assert process.wait(60) == -signal.SIGTERM


async def test_a_run_that_can_only_be_ended_is_a_failed_span(tmp_path: Path, receiver: OtlpReceiver) -> None:
    async with OpenAIServer([]) as model:

        def play() -> None:
            headers = {"traceparent": TRACEPARENT}
            with traced(tmp_path, model, UNREADY_AGENT) as server:
                with server.running("Once", headers=headers, chat_id="c"):
                    server.process.kill()
            with traced(tmp_path, model, UNREADY_AGENT) as heir:
                assert "interrupted" in heir.follow()

        await asyncio.to_thread(play)
    [ended] = receiver.spans
    assert (ended.trace_id, ended.parent_id) == (TRACE, CALLER)
    assert ended.is_error
    assert ended.attributes["error.type"] == "interrupted"


async def test_a_run_after_a_takeover_has_the_same_trace_and_request_id(tmp_path: Path, receiver: OtlpReceiver) -> None:
    async with OpenAIServer([chunks(text("Once "), ending="hang"), chunks(text("Upon."), finish("stop"))]) as model:

        def play() -> list[dict[str, Any]]:
            headers = {"traceparent": TRACEPARENT, "X-Request-Id": "the-first"}
            with traced(tmp_path, model) as server, server.running("Once", headers=headers, chat_id="c"):
                server.process.kill()
            with traced(tmp_path, model) as heir:
                assert '"type":"done"' in heir.follow()
            return heir.log

        log = await asyncio.to_thread(play)
    # Spans that the killed server had not sent are lost.
    run, asked = receiver.spans
    assert (run.trace_id, run.parent_id) == (TRACE, CALLER)
    assert (asked.trace_id, asked.parent_id) == (TRACE, run.span_id)
    assert {line.get("request_id") for line in log if line.get("run_id") == "r"} == {"the-first"}
