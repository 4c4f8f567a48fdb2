"""Files attached by the user reach the agent once, and only the user's own files."""

import base64
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from callboard_protocol import Done, RunRequest, RunStart
from tests.pipe.loader import provide_open_webui
from tests.pipe.scripted_server import ScriptedServer, frames, stream
from tests.pipe.test_stream import METADATA, a_pipe, answer

USER = {"id": "u1", "name": "Ada"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,xx"}}


@dataclass
class Kept:
    path: str
    user_id: str


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Kept]:
    """Open WebUI's files by id."""
    files = {"f1": Kept("f1", "u1"), "f2": Kept("f2", "u1"), "theirs": Kept("f1", "u2"), "gone": Kept("gone", "u1")}
    (tmp_path / "f1").write_bytes(b"one")
    (tmp_path / "f2").write_bytes(b"two")

    async def get_file_by_id(file_id: str) -> Kept | None:
        return files.get(file_id)

    def get_file(path: str) -> str:
        return str(tmp_path / path)

    modules = {
        "models.files": {"Files": SimpleNamespace(get_file_by_id=get_file_by_id)},
        "storage.provider": {"Storage": SimpleNamespace(get_file=get_file)},
    }
    provide_open_webui(monkeypatch, modules)
    return files


def file(file_id: str, name: str = "a.pdf", kind: str = "application/pdf", **fields: Any) -> dict[str, Any]:
    return {"type": "file", "id": file_id, "name": name, "content_type": kind, "size": 3} | fields


def part(name: str, content: bytes, kind: str = "application/pdf") -> dict[str, Any]:
    data = f"data:{kind};base64,{base64.b64encode(content).decode()}"
    return {"type": "file", "file": {"filename": name, "file_data": data}}


async def sent(server: ScriptedServer, *files: Any, content: Any = "Read it.", **metadata: Any) -> Any:
    """The content of the last user message as the server gets it."""
    server.on("POST", "runs", stream(frames(RunStart(run_id="r", agent="a"), Done())))
    asked = {"role": "user", "content": content}
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}, asked]
    metadata = METADATA | {"files": list(files)} | metadata
    await answer(a_pipe(server.url), body={"messages": messages}, __metadata__=metadata, __user__=USER)
    assert asked["content"] == content, "Open WebUI's own messages are not the pipe's to change"
    request = RunRequest.model_validate(server.requests[0].json)
    assert [message.content for message in request.messages[:-1]] == ["Hello", "Hi"]
    return request.messages[-1].content


async def test_files_are_parts_of_the_last_question(server: ScriptedServer, store: dict[str, Kept]) -> None:
    content = await sent(server, file("f1"), file("f2", "b.csv", "text/csv"))
    assert content == [{"type": "text", "text": "Read it."}, part("a.pdf", b"one"), part("b.csv", b"two", "text/csv")]


async def test_images_stay_where_open_webui_put_them(server: ScriptedServer, store: dict[str, Kept]) -> None:
    parts = [{"type": "text", "text": "Look."}, IMAGE]
    content = await sent(server, file("f2", "x.png", "image/png"), file("f1"), content=parts)
    assert content == [*parts, part("a.pdf", b"one")]


async def test_files_that_open_webui_already_sent_are_not_sent_again(
    server: ScriptedServer, store: dict[str, Kept]
) -> None:
    sources = [{"source": file("f1"), "document": ["one"], "metadata": [{"source": "f1"}]}]
    content = await sent(server, file("f1"), file("f2", "b.pdf"), sources=sources)
    assert content == [{"type": "text", "text": "Read it."}, part("b.pdf", b"two")]


@pytest.mark.parametrize("file_id", ["theirs", "gone"])
async def test_only_the_name_is_sent_of_a_missing_file_or_another_users(
    server: ScriptedServer, store: dict[str, Kept], file_id: str
) -> None:
    [_, note] = await sent(server, file(file_id))
    assert note == {"type": "file", "file": {"filename": "a.pdf", "file_data": ""}}


@pytest.mark.parametrize(
    "files",
    [None, [{"type": "collection", "id": "k"}, 3, {"type": "file", "id": "f1", "content_type": "image/png"}]],
)
async def test_question_without_files_is_unchanged(server: ScriptedServer, files: Any) -> None:
    assert await sent(server, **({} if files is None else {"files": files})) == "Read it."
