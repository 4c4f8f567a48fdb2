"""Images, files and pages that a tool returns with its text, and links to the full text of cut results."""

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from callboard_protocol import Done, RunStart, ToolCallComplete, Usage
from tests.pipe.loader import PIPE, provide_open_webui, read_next_turn
from tests.pipe.owui_blocks import streamed_content, tool_blocks
from tests.pipe.scripted_server import ScriptedServer, answer_bytes, error_response, frames, stream
from tests.pipe.test_rendering import completed, drawn, started
from tests.pipe.test_stream import METADATA, a_pipe, answer

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="
)
USER = {"id": "u1", "name": "Ada", "email": "ada@example.org", "role": "user"}


@dataclass
class Upload:
    """As fastapi's."""

    file: Any
    filename: str
    headers: dict[str, str]


@dataclass
class Store:
    """Open WebUI's file store as far as `upload_file_handler` shows it."""

    folder: Path
    error: Exception | None = None
    kept: dict[str, Upload] = field(default_factory=dict)
    previews: dict[str, str] = field(default_factory=dict)
    message: dict[str, Any] = field(default_factory=dict)
    owners: list[str] = field(default_factory=list)

    async def put(self, request: Any, file: Upload, metadata: dict[str, Any], process: bool, user: Any) -> Any:
        if self.error:
            raise self.error
        assert process is False, "it would be read into the knowledge base"
        file_id = f"f{len(self.kept)}"
        (self.folder / file_id).write_bytes(file.file.read())
        self.kept[file_id] = file
        self.owners.append(user.id)
        return SimpleNamespace(id=file_id)

    async def update_file_data_by_id(self, file_id: str, data: dict[str, Any]) -> None:
        self.previews[file_id] = data["content"]

    async def get_message_by_id_and_message_id(self, chat_id: str, message_id: str) -> dict[str, Any]:
        assert (chat_id, message_id) == (METADATA["chat_id"], METADATA["message_id"])
        return self.message


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    store = Store(tmp_path)
    modules: dict[str, dict[str, Any]] = {
        "routers.files": {"UploadFile": Upload, "upload_file_handler": store.put},
        "models.files": {"Files": store},
        "models.chats": {"Chats": store},
    }
    provide_open_webui(monkeypatch, modules)
    return store


def file(url: str, kind: str = "image", **fields: Any) -> dict[str, Any]:
    return {"type": kind, "url": url, **fields}


async def updates_with(
    server: ScriptedServer, *calls: list[dict[str, Any]], held: bytes = PIXEL, kind: str = "image/png", **changes: Any
) -> list[dict[str, Any]]:
    """The updates of a run whose calls return these files; those with an address `here` are the server's own."""

    async def run(writer: Any) -> None:
        run_id = server.requests[0].json["run_id"]
        ends = [
            ToolCallComplete(
                tool_call_id=f"c{number}",
                tool_name="draw",
                result="fine",
                files=tuple(one | {"url": one["url"].replace("here:", f"/v1/runs/{run_id}/files/")} for one in files),
            )
            for number, files in enumerate(calls)
        ]
        await stream(frames(RunStart(run_id=run_id, agent="a"), *ends, Done()))(writer)

    server.on("POST", "runs", run)
    for name in ("f1", "f2", "f3"):
        server.on("GET", name, answer_bytes(held, kind=kind))
    return await answer(a_pipe(server.url, "key"), __user__=USER, **changes)


async def drawn_with(
    server: ScriptedServer, *files: dict[str, Any], held: bytes = PIXEL, kind: str = "image/png", **changes: Any
) -> str:
    """The answer to a run whose only call returns these files."""
    return streamed_content(await updates_with(server, [*files], held=held, kind=kind, **changes))


class Message:
    """The files of a message of Open WebUI 0.12.4 after the pipe's events: in its database, and on its page.

    After `get_event_emitter` in open_webui/socket/main.py, and `chatEventHandler` in Chat.svelte.
    """

    def __init__(self, updates: list[dict[str, Any]], known: list[dict[str, Any]]) -> None:
        self.stored = [*known]
        self.shown = [*known]
        for update in updates:
            event = update.get("event", {})
            if event.get("type") not in ("files", "chat:message:files"):
                continue
            files = json.loads(json.dumps(event["data"]["files"]))
            self.shown = files
            if event["type"] == "files":
                self.stored = files + self.stored


async def test_a_large_image_goes_to_open_webuis_store(server: ScriptedServer, store: Store) -> None:
    [block] = tool_blocks(await drawn_with(server, file("here:f1", name="cat.png")))
    assert block.value("files") == [{"type": "image", "url": "/api/v1/files/f0/content"}]
    assert (store.kept["f0"].filename, store.kept["f0"].headers) == ("cat.png", {"content-type": "image/png"})
    assert (store.folder / "f0").read_bytes() == PIXEL
    assert store.owners == ["u1"]
    [fetched] = await server.seen("GET", "f1")
    assert fetched.headers["authorization"] == "Bearer key"


async def test_image_that_cannot_be_stored_becomes_a_notice(
    server: ScriptedServer, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.error = RuntimeError("the disk is full")
    text = await drawn_with(server, file("here:f1"))
    assert "could not be saved: Open WebUI's log has the reason." in text
    assert "the disk is full" in caplog.text


REPORT = {"type": "file", "url": "here:f1", "name": "report.pdf", "size": 3}
LETTER = {"type": "file", "url": "here:f2", "name": "letter.md"}
LEDGER = {"type": "file", "url": "here:f3", "name": "ledger.csv"}


def chip(file_id: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "file", "id": file_id, "url": file_id, "name": name, **fields}


def without_paths(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in one.items() if name != "callboard_path"} for one in files]


async def test_files_of_several_calls_are_chips_on_the_page_and_in_the_database(
    server: ScriptedServer, store: Store
) -> None:
    updates = await updates_with(server, [REPORT, LETTER], [LEDGER])
    drawn = Message(updates, [])
    assert without_paths(drawn.shown) == [
        chip("f2", "ledger.csv"),
        chip("f0", "report.pdf", size=3),
        chip("f1", "letter.md"),
    ]
    assert drawn.stored == drawn.shown
    assert "> **Callboard:**" not in streamed_content(updates)


async def test_a_continued_answer_keeps_the_chips_that_it_has(server: ScriptedServer, store: Store) -> None:
    store.message = {"files": [chip("old", "plan.txt")]}
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    updates = await updates_with(server, [REPORT], body={"messages": messages})
    drawn = Message(updates, store.message["files"])
    assert [one["id"] for one in drawn.shown] == ["f0", "old"]
    assert drawn.stored == drawn.shown


async def test_a_restored_answer_has_each_chip_once(server: ScriptedServer, store: Store) -> None:
    names = {"f1": "report.pdf", "f2": "letter.md"}
    files = [{"type": "file", "url": f"/v1/runs/r/files/{path}", "name": name} for path, name in names.items()]
    ends = [ToolCallComplete(tool_call_id=one["name"], result="fine", files=(one,)) for one in files]
    server.on("GET", "events", stream(frames(RunStart(run_id="r", agent="a"), *ends, Done())))
    server.on("GET", "f2", answer_bytes(b"late", kind="text/plain"))
    known = [chip("old", "report.pdf", callboard_path=files[0]["url"])]
    pipe = a_pipe(server.url)
    found = PIPE.LeftAnswer("r", [{"role": "user"}], is_logged=True)
    metadata = METADATA | {"files": known}
    updates = [update async for update in pipe.restore(found, USER, metadata, "callboard.a", None, None)]
    drawn = Message(updates, known)
    assert [one["id"] for one in drawn.shown] == ["f0", "old"]
    assert drawn.stored == drawn.shown
    assert [one.filename for one in store.kept.values()] == ["letter.md"]


@pytest.mark.parametrize(
    ("kind", "content", "preview"),
    [
        ("text/plain", "Prologue – ä".encode(), "Prologue – ä"),
        ("application/json; charset=utf-8", b'{"a": "\xff\0"}', '{"a": "\ufffd\ufffd"}'),
        ("text/csv", b"a" * 1_000_001, None),
        ("image/svg+xml", b"<svg/>", None),
    ],
)
async def test_open_webuis_dialog_shows_the_text_of_short_text_files(
    server: ScriptedServer, store: Store, kind: str, content: bytes, preview: str | None
) -> None:
    await updates_with(server, [REPORT], held=content, kind=kind)
    assert store.previews.get("f0") == preview


@pytest.mark.parametrize("metadata", [METADATA | {"chat_id": "channel:c"}, {}], ids=["channel", "api"])
async def test_a_message_without_chips_has_links_below_its_calls(
    server: ScriptedServer, store: Store, metadata: dict[str, Any]
) -> None:
    held = file("here:f1", "file", name="a [b](c).pdf")
    updates = await updates_with(server, [held], held=b"{}", kind="application/pdf", __metadata__=metadata)
    text = streamed_content(updates)
    assert text.endswith("</details>\n\n\n> **Callboard:** [a (b)(c).pdf](/api/v1/files/f0/content)\n")
    [call, _] = read_next_turn([{"role": "assistant", "content": text}])
    assert call["content"] is None
    assert not Message(updates, []).shown


async def test_missing_or_dropped_file_becomes_a_notice_with_its_name(server: ScriptedServer) -> None:
    server.on("GET", "gone", error_response(404, "unknown_file", "gone"))
    dropped = file("", "file", name="b.pdf", dropped="over 64 characters of files in one run")
    text = await drawn_with(server, file("here:gone", "file", name="a.pdf"), dropped)
    assert "The file a.pdf could not be saved" in text
    assert "The file b.pdf could not be saved: the server's log has the reason." in text


@pytest.mark.parametrize("url", ["/v1/runs/other/files/f1", "here:../../../health"])
async def test_no_other_address_of_the_server_is_fetched_for_a_tool(server: ScriptedServer, url: str) -> None:
    assert "could not be saved" in await drawn_with(server, file(url))
    assert [request.method for request in server.requests] == ["POST"]


def test_an_image_on_the_web_is_a_link_for_open_webui_does_not_load_it() -> None:
    text = drawn(started(), completed(files=[file("https://x/a b.png?q=(1)", name="x")])).render()
    assert text.endswith("> **Callboard:** [x](https://x/a%20b.png?q=%281%29)\n")


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "//evil"])
def test_no_other_scheme_is_linked(url: str) -> None:
    text = drawn(started(), completed(files=[file(url, "file", name="x")])).render()
    assert "](" not in text
    assert "could not be saved" in text


# --- Pages.


def test_pages_are_embeds_shown_at_once_and_saved_once() -> None:
    transcript = drawn(
        started("a"), completed("1", "a", embeds=["<p>1</p>"]), completed("2", "b", embeds=["http://2", 3])
    )
    assert transcript.events == [
        {"type": "chat:message:embeds", "data": {"embeds": ["<p>1</p>"]}},
        {"type": "chat:message:embeds", "data": {"embeds": ["<p>1</p>", "http://2"]}},
    ]
    for _ in range(2):
        transcript.close("end")
        saved = {"embeds": ["<p>1</p>", "http://2"], "replace": True}
        assert transcript.events[2:] == [{"type": "embeds", "data": saved}]
    assert all("embeds" not in block.attributes for block in tool_blocks(transcript.render()))


def receive_pages(updates: list[dict[str, Any]], saved: list[str]) -> tuple[list[str], list[str]]:
    """Return the pages of a message after the updates: in the database of Open WebUI 0.12.4, and on its page.

    After `get_event_emitter` in open_webui/socket/main.py, and `chatEventHandler` in Chat.svelte.
    """
    shown = saved
    for update in updates:
        event = update.get("event", {})
        if event.get("type") in ("embeds", "chat:message:embeds"):
            shown = event["data"]["embeds"]
            if event["type"] == "embeds":
                saved = shown if event["data"].get("replace") else shown + saved
    return saved, shown


async def test_a_continued_answer_keeps_its_pages(server: ScriptedServer, store: Store) -> None:
    store.message = {"embeds": ["<p>1</p>"]}
    end = ToolCallComplete(tool_call_id="c", tool_name="draw", result="fine", embeds=("<p>2</p>",))
    server.on("POST", "runs", stream(frames(RunStart(run_id="r", agent="a"), end, Done())))
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    updates = await answer(a_pipe(server.url), body={"messages": messages})
    assert receive_pages(updates, [])[0] == ["<p>1</p>", "<p>2</p>"]


# --- The link to the whole result, and usage.


async def test_usage_is_what_open_webuis_info_button_shows(server: ScriptedServer) -> None:
    usage = Usage(input_tokens=3, output_tokens=4, total_tokens=7, cached_tokens=2, reasoning_tokens=1)
    server.on("POST", "runs", stream(frames(RunStart(run_id="r", agent="a"), usage, Done())))
    [update] = [update for update in await answer(a_pipe(server.url)) if "usage" in update]
    assert update["choices"] == []
    expected = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "cached_tokens": 2, "reasoning_tokens": 1}
    assert update["usage"] == expected
