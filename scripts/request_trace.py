"""Count the functions, files and classes of the project that a request passes, from POST /v1/runs to its frames.

The request starts a run with one tool call, over SQLite, with a scripted model behind HTTP. Counted are functions and
methods of `server` and `shared` that are called in any thread; comprehensions, lambdas and generated methods are not.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import CodeType, FrameType

import httpx
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callboard import Agent, Callboard, OpenAICompatible, Settings, Skill, tool
from callboard._logging import set_up_logging
from callboard.models import ModelDelta, ModelRequest
from tests.fakes.openai_server import OpenAIServer, call, chunks, finish, text

ROOT = Path(__file__).resolve().parent.parent
SOURCES = tuple(f"{ROOT / folder}{os.sep}" for folder in ("server/callboard", "server/callboard_formats", "shared"))
REQUEST = {
    "agent": "clerk",
    "chat_id": "chat",
    "user": {"id": "user"},
    "messages": [{"role": "user", "content": "What is 1 + 2?"}],
}


class Trace:
    """ASGI middleware that records the functions called during POST /v1/runs, in the order of their first call."""

    def __init__(self, app: ASGIApp) -> None:
        self.codes: dict[CodeType, None] = {}
        self.until_first_frame = 0
        self.first_frame = asyncio.Event()
        self._app = app
        self._is_recording = False
        # Before any thread of the application begins: threads inherit the function at their start.
        threading.setprofile(self._record)
        sys.setprofile(self._record)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_counted(message: Message) -> None:
            if not self.first_frame.is_set() and message.get("body"):
                self.until_first_frame = len(self.codes)
                self.first_frame.set()
            if b'"type":"done"' in message.get("body", b""):
                self._is_recording = False
            await send(message)

        self._is_recording = True
        await self._app(scope, receive, send_counted)

    def _record(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if (
            self._is_recording
            and event == "call"
            and code.co_filename.startswith(SOURCES)
            and not code.co_name.startswith("<")
        ):
            self.codes[code] = None


def describe(codes: list[CodeType]) -> str:
    files = {code.co_filename for code in codes}
    # The class of a function inside a method is that of the method.
    owners = (code.co_qualname.partition(".<locals>")[0].rpartition(".")[0] for code in codes)
    classes = {(code.co_filename, owner) for code, owner in zip(codes, owners, strict=True) if owner}
    return f"{len(codes):4} functions, {len(files):4} files, {len(classes):4} classes"


class PatientModel(OpenAICompatible):
    """Answers after the first frame, so that every trace has the same functions before it."""

    trace: Trace

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        await self.trace.first_frame.wait()
        async for delta in super().stream(request):
            yield delta


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def trace_request(folder: Path) -> Trace:
    script = [
        chunks(call("add", '{"a": 1, "b": 2}', call_id="call"), finish("tool_calls")),
        chunks(text("It is 3."), finish("stop")),
    ]
    async with OpenAIServer(script, models=["m"]) as endpoint:
        agent = Agent("clerk", skills=[Skill("arithmetic", "Adds.", tools=[add])])
        model = PatientModel(endpoint.base_url, model="m")
        app = Callboard([agent], model=model, settings=Settings(data_dir=folder)).asgi()
        trace = model.trace = Trace(app)
        async with (
            app.lifespan(),
            httpx.AsyncClient(transport=httpx.ASGITransport(trace), base_url="http://127.0.0.1") as client,
        ):
            # An application reads a first answer in the background when it opens.
            await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == "prepare reading"))
            answer = await client.post("/v1/runs", json=REQUEST)
    if '"result":"3"' not in answer.text or not answer.text.rstrip().endswith('{"type":"done","finish_reason":"stop"}'):
        raise SystemExit(f"The run failed:\n{answer.text}")
    return trace


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/trace", description=__doc__)
    parser.add_argument("--list", action="store_true", help="also print the functions in the order of their first call")
    given = parser.parse_args()
    set_up_logging("warning")
    with tempfile.TemporaryDirectory(prefix="callboard-trace-") as folder:
        trace = asyncio.run(trace_request(Path(folder)))
    codes = list(trace.codes)
    if given.list:
        for number, code in enumerate(codes):
            if number == trace.until_first_frame:
                print("--- first frame")
            print(f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_firstlineno} {code.co_qualname}")
    print(f"first frame: {describe(codes[: trace.until_first_frame])}")
    print(f"done:        {describe(codes)}")


if __name__ == "__main__":
    main()
