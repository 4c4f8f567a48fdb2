"""A server imports nothing while it serves."""

import json
import subprocess
import sys
from pathlib import Path

from tests.http.test_signed_users import HEADER, SECRET, signed

RUN = """
import asyncio, json, sys
import httpx
from callboard import Agent, Callboard, Settings, Skill, tool
from callboard.testing import Call, FakeModel

@tool
async def add(a: int, b: int) -> int:
    "Adds."
    return a + b

skills = [Skill("arithmetic", "Adds.", tools=[add])]
model = FakeModel([Call("add", a=1, b=2)], "It is 3.")
settings = Settings(data_dir=sys.argv[1], open_webui_jwt_secret=sys.argv[2])
board = Callboard([Agent("clerk", skills=skills)], model=model, settings=settings)
request = {"agent": "clerk", "chat_id": "c", "user": {"id": "ann"}, "messages": [{"role": "user", "content": "1 + 2?"}]}
signed = {"x-openwebui-user-jwt": sys.argv[3]}

async def main():
    app = board.asgi()
    async with app.lifespan():
        before = set(sys.modules)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.post("/v1/runs", json=request, headers=signed)
        print(json.dumps([answer.text, sorted(set(sys.modules) - before)]), file=sys.stderr)

asyncio.run(main())
"""


def test_a_server_imports_nothing_during_its_first_run(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, str(tmp_path), SECRET, signed()[HEADER]]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    answer, imported = json.loads(ended.stderr)
    assert "It is 3." in answer
    assert imported == []
