"""The server behind nginx, with the configuration that docs/how-to/behind-a-proxy.md shows, over TLS."""

import os
import re
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from callboard_protocol import Decoder, Done, Event, InputRequest, ToolCallComplete, decode
from service import free_port
from tests import processes

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "behind-a-proxy.md"
NAME = "callboard.example.org"
KEY = "key-of-the-proxy-tests"
FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def site(folder: Path, port: int, server: str) -> str:
    """The page's own block, with what differs from machine to machine put in."""
    found = re.search(r"```nginx\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    text = found[1]
    for shown, ours in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/ssl/callboard.pem", str(folder / "callboard.pem")),
        ("/etc/ssl/callboard.key", str(folder / "callboard.key")),
        ("http://127.0.0.1:8700", server),
    ):
        assert text.count(shown) == 1, shown
        text = text.replace(shown, ours)
    return text


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def proxied(tmp_path: Path, authority: trustme.CA) -> Iterator[int]:
    """The port of an nginx before a server, which ends with the test."""
    issued = authority.issue_cert(NAME)
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "callboard.key")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "callboard.pem")
    port = free_port()
    with processes.serving(tmp_path / "data", API_KEY=KEY, TRUSTED_HOSTS=NAME) as (url, _):
        config = tmp_path / "nginx.conf"
        lines = [
            *(["user root;"] if os.geteuid() == 0 else []),
            f"pid {tmp_path}/nginx.pid;",
            f"error_log {tmp_path}/error.log;",
            "events {}",
            "http {",
            f"access_log {tmp_path}/access.log;",
            *(f"{name}_temp_path {tmp_path}/{name};" for name in FOLDERS),
            site(tmp_path, port, url),
            "}",
        ]
        config.write_text("\n".join(lines))
        # It returns once it listens.
        subprocess.run(["nginx", "-c", config], check=True, timeout=30)
        try:
            yield port
        finally:
            subprocess.run(["nginx", "-c", config, "-s", "stop"], check=True, timeout=30)


@pytest.fixture
async def client(proxied: int, authority: trustme.CA) -> AsyncIterator[httpx.AsyncClient]:
    """A client that reaches nginx by the name on its certificate."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with httpx.AsyncClient(
        base_url=f"https://127.0.0.1:{proxied}",
        verify=context,
        headers={"Authorization": f"Bearer {KEY}", "Host": NAME},
        timeout=30,
    ) as opened:
        yield opened


def asked(text: str, **fields: object) -> dict[str, object]:
    return {"agent": "demo", "messages": [{"role": "user", "content": text}], **fields}


async def test_every_event_comes_through_as_it_is_sent(client: httpx.AsyncClient) -> None:
    seen: list[Event] = []
    decoder = Decoder()
    sni = {"sni_hostname": NAME}
    request = client.build_request("POST", "/v1/runs", json=asked("approve", run_id="r"), extensions=sni)
    response = await client.send(request, stream=True)
    assert response.status_code == 200
    async for chunk in response.aiter_bytes():
        for frame in decoder.feed(chunk):
            event = decode(frame)
            assert event is not None
            seen.append(event)
            if isinstance(event, InputRequest):
                # Were it held back until the end, there would be no end: the run waits for this answer.
                answer = {"request_id": event.request_id, "value": True}
                told = await client.post("/v1/runs/r/input", json=answer, extensions=sni)
                assert told.status_code == 202
    assert [event.tool_name for event in seen if isinstance(event, ToolCallComplete)] == ["sell_ticket"]
    assert isinstance(seen[-1], Done)
