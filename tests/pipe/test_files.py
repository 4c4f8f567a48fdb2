"""Images, files and pages that a tool returns with its text, and links to the full text of cut results."""

import base64
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from callboard_protocol import Done, RunStart, ToolCallComplete, Usage
from tests.pipe.loader import read_next_turn
from tests.pipe.owui_blocks import streamed_content, tool_blocks
from tests.pipe.scripted_server import ScriptedServer, answer_bytes, answer_error, frames, stream
from tests.pipe.test_rendering import completed, drawn, message, only_block, started
from tests.pipe.test_stream import a_pipe, answer

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
    """Open WebUI's file store as far as `upload_file_handler` shows it; 0.8's is not async."""

    folder: Path
    is_async: bool = True
    error: Exception | None = None
    kept: dict[str, Upload] = field(default_factory=dict)
    owners: list[str] = field(default_factory=list)

    def _put(self, request: Any, file: Upload, metadata: dict[str, Any], process: bool, user: Any) -> Any:
        if self.error:
            raise self.error
        assert process is False, "it would be read into the knowledge base"
        file_id = f"f{len(self.kept)}"
        (self.folder / file_id).write_bytes(file.file.read())
        self.kept[file_id] = file
        self.owners.append(user.id)
        return types.SimpleNamespace(id=file_id)

    async def _put_async(self, *args: Any, **options: Any) -> Any:
        return self._put(*args, **options)

    @property
    def upload_file_handler(self) -> Any:
        return self._put_async if self.is_async else self._put


@pytest.fixture(params=[True, False], ids=["async", "sync"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Open WebUI's module in place for the pipe's own import."""
    store = Store(tmp_path, request.param)
    names = ("open_webui", "open_webui.routers", "open_webui.routers.files")
    modules = {name: types.ModuleType(name) for name in names}
    modules[names[-1]].__dict__.update(UploadFile=Upload, upload_file_handler=store.upload_file_handler)
    sys.modules.update(modules)
    yield store
    for name in names:
        del sys.modules[name]


def file(url: str, kind: str = "image", **fields: Any) -> dict[str, Any]:
    return {"type": kind, "url": url, **fields}


async def drawn_with(
    server: ScriptedServer, *files: dict[str, Any], held: bytes = PIXEL, kind: str = "image/png"
) -> str:
    """The answer to a run whose call returns files; those with an address `here` are the server's own."""

    async def run(writer: Any) -> None:
        run_id = server.requests[0].json["run_id"]
        placed = tuple(one | {"url": one["url"].replace("here:", f"/v1/runs/{run_id}/files/")} for one in files)
        complete = ToolCallComplete(tool_call_id="c", tool_name="draw", result="fine", files=placed)
        await stream(frames(RunStart(run_id=run_id, agent="a"), complete, Done()))(writer)

    server.on("POST", "runs", run)
    server.on("GET", "f1", answer_bytes(held, kind=kind))
    return streamed_content(await answer(a_pipe(server.url, "key"), __user__=USER))


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
    [block] = tool_blocks(text)
    assert "files" not in block.attributes
    assert "could not be kept: Open WebUI's log has the reason." in text
    assert "the disk is full" in caplog.text


async def test_another_file_is_a_link_below_its_call(server: ScriptedServer, store: Store) -> None:
    held = file("here:f1", "file", name="a [b](c).pdf")
    text = await drawn_with(server, held, held={}.__repr__().encode(), kind="application/pdf")
    assert text.endswith("</details>\n\n\n> **Callboard:** [a (b)(c).pdf](/api/v1/files/f0/content)\n")
    [call, _] = read_next_turn([{"role": "assistant", "content": text}])
    assert call["content"] is None


async def test_missing_file_becomes_a_notice_with_its_name(server: ScriptedServer) -> None:
    server.on("GET", "gone", answer_error(404, "unknown_file", "gone"))
    text = await drawn_with(server, file("here:gone", "file", name="a.pdf"))
    assert "The file a.pdf could not be kept" in text


def test_notice_of_a_dropped_file_points_to_the_servers_log() -> None:
    dropped = {**file("", "file", name="a.pdf"), "dropped": "over 64 characters of files in one run"}
    text = drawn(started(), completed(files=[dropped])).render()
    assert "The file a.pdf could not be kept: the server's log has the reason." in text


@pytest.mark.parametrize("url", ["/v1/chats/other/messages", "/v1/runs/other/files/f1", "here:../../../health"])
async def test_no_other_address_of_the_server_is_fetched_for_a_tool(server: ScriptedServer, url: str) -> None:
    assert "could not be kept" in await drawn_with(server, file(url))
    assert [request.method for request in server.requests] == ["POST"]


def test_an_image_on_the_web_is_a_link_for_open_webui_does_not_load_it() -> None:
    text = drawn(started(), completed(files=[file("https://x/a b.png?q=(1)", name="x")])).render()
    assert text.endswith("> **Callboard:** [x](https://x/a%20b.png?q=%281%29)\n")


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "", "//evil", "file:///etc/passwd"])
def test_no_other_scheme_is_linked(url: str) -> None:
    text = drawn(started(), completed(files=[file(url, "file", name="x")])).render()
    assert "](" not in text
    assert "could not be kept" in text


def test_text_after_a_link_begins_anew() -> None:
    events = [started(), completed(files=[file("http://x/a", "file", name="a")]), message("Done.")]
    text = drawn(*events).render()
    assert text.endswith("> **Callboard:** [a](http://x/a)\n\nDone.")
    *_, last = read_next_turn([{"role": "assistant", "content": text}])
    assert last == {"role": "assistant", "content": "Done."}


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
        assert transcript.events[2:] == [{"type": "embeds", "data": {"embeds": ["<p>1</p>", "http://2"]}}]
    assert all("embeds" not in block.attributes for block in tool_blocks(transcript.render()))


# --- The link to the whole result, and usage.


def test_a_cut_result_links_to_the_whole_one() -> None:
    url = "https://board.example/v1/tool-calls/c?signature=x"
    cut = only_block(started(), completed("x" * 1000, result_url=url), result_chars=200).value("result")
    assert cut.endswith(f" more characters: {url}]")
    assert len(cut) <= 200
    whole = only_block(started(), completed("x", result_url=url)).value("result")
    assert whole == "x"


async def test_usage_is_what_open_webuis_info_button_shows(server: ScriptedServer) -> None:
    usage = Usage(input_tokens=3, output_tokens=4, total_tokens=7, cached_tokens=2, reasoning_tokens=1)
    server.on("POST", "runs", stream(frames(RunStart(run_id="r", agent="a"), usage, Done())))
    [update] = [update for update in await answer(a_pipe(server.url)) if "usage" in update]
    assert update["choices"] == []
    expected = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "cached_tokens": 2, "reasoning_tokens": 1}
    assert update["usage"] == expected
