"""A real browser opens a hostile page while a server without a key runs beside it: nothing runs, reads or deletes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Page, Request, Response, async_playwright

from tests.browsers import CHROMIUM_FLAGS, chromium
from tests.http.target import SECRET, target

pytestmark = pytest.mark.e2e

HOSTILE = "evil.example"
PAGE = "<!doctype html><title>Kittens</title><body>"

# Each says what it could read; a page may not see more of a request that it may not make.
ATTEMPTS = """
async (server) => {
  const body = JSON.stringify({agent: "scripted", model: "scripted", input: "hi", stream: false,
                               messages: [{role: "user", content: "hi"}]});
  const paths = ["/v1/runs", "/v1/responses", "/v1/chat/completions", "/v1/runs/waiting/cancel"];
  const read = [];
  const attempt = async (path, options) => {
    try { read.push(await (await fetch(server + path, options)).text()); } catch (error) { read.push(""); }
  };
  const frame = (set) => new Promise((done) => {
    const made = document.createElement("iframe");
    made.name = "f" + Math.random();
    document.body.append(made);
    made.onload = done;
    set(made);
  });
  for (const path of paths) {
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
      await frame((made) => {
        const form = document.createElement("form");
        const cut = body.lastIndexOf('"');
        Object.assign(form, {method: "post", enctype: type, action: server + path, target: made.name});
        const field = document.createElement("input");
        Object.assign(field, {name: body.slice(0, -1) + ', "user": "', value: '"}'});
        form.append(field);
        document.body.append(form);
        form.submit();
      });
    }
    await attempt(path, {method: "POST", body, mode: "no-cors"});
    await attempt(path, {method: "POST", body, mode: "no-cors", headers: {"Content-Type": "text/plain"}});
    await attempt(path, {method: "POST", body, headers: {"Content-Type": "text/plain"}});
    await attempt(path, {method: "POST", body, headers: {"Content-Type": "application/json"}});
    await attempt(path, {method: "POST", body, headers: {"Content-Type": "application/json"}, keepalive: true});
    await attempt(path, {method: "POST"});
    navigator.sendBeacon(server + path, body);
    navigator.sendBeacon(server + path, new Blob([body], {type: "application/json"}));
    navigator.sendBeacon(server + path, new URLSearchParams({body}));
  }
  const kept = ["/v1/chats/c", "/v1/chats/c/messages", "/v1/tool-calls", "/v1/models", "/v1/runs/waiting/events"];
  for (const path of kept) {
    await attempt(path, {method: "DELETE"});
    await attempt(path, {});
    await attempt(path, {mode: "no-cors"});
    await frame((made) => { made.src = server + path; });
  }
  const opened = await new Promise((done) => {
    const socket = new WebSocket(server.replace("http", "ws") + "/v1/responses");
    socket.onopen = () => done(true);
    socket.onerror = () => done(false);
  });
  return {read, opened};
}
"""


async def show_page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n{PAGE}".encode())
    writer.close()


@pytest.fixture
async def site() -> AsyncIterator[int]:
    """The port of a hostile web site on this machine."""
    async with await asyncio.start_server(show_page, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


class Watch:
    """What the browser sent to a server, and what it was answered."""

    def __init__(self, page: Page, server: str) -> None:
        self.answered: list[tuple[str, int]] = []
        self._server = server
        self._open: set[Request] = set()
        self._changed = asyncio.Condition()
        page.on("request", self._sent)
        page.on("response", self._answered)
        page.on("requestfinished", self._ended)
        page.on("requestfailed", self._ended)

    def _sent(self, request: Request) -> None:
        if request.url.startswith(self._server):
            self._open.add(request)

    def _answered(self, response: Response) -> None:
        if response.url.startswith(self._server):
            self.answered.append((response.request.method, response.status))

    async def _ended(self, request: Request) -> None:
        async with self._changed:
            self._open.discard(request)
            self._changed.notify_all()

    async def all_ended(self) -> None:
        """Return once nothing is under way any more, what the page itself cannot wait for included."""
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: not self._open)


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """A page of a browser for which the hostile name points to this machine."""
    flags = [*CHROMIUM_FLAGS, f"--host-resolver-rules=MAP {HOSTILE} 127.0.0.1"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=flags)
        yield await browser.new_page()
        await browser.close()


@pytest.mark.parametrize("name", ["127.0.0.1", HOSTILE])
async def test_a_page_of_another_port_or_site_gets_nothing_from_a_server_without_a_key(
    page: Page, site: int, tmp_path: Path, name: str
) -> None:
    async with target(tmp_path) as found:
        server = f"http://127.0.0.1:{found.port}"
        await page.goto(f"http://{name}:{site}/")
        watch = Watch(page, server)
        tried = await page.evaluate(ATTEMPTS, server)
        await watch.all_ended()
        assert not tried["opened"]
        assert not any(SECRET in text for text in tried["read"])
        for frame in page.frames:
            assert SECRET not in await frame.content()
        await found.check_unharmed()
    assert {("POST", 403), ("GET", 403)} <= set(watch.answered)
    assert {status for _, status in watch.answered} == {403}
