"""Users whose answers stream at once through one Open WebUI: nobody reads another's, and nobody waits for all."""

import asyncio
import time
from pathlib import Path

import install_pipe
import openwebui
from tests import processes
from tests.bench.agents import ECHOES
from tests.bench.report import Target, milliseconds, print_table
from tests.bench.size import FULL, SMOKE, Size
from tests.bench.webui import at_hand, running

USERS = {FULL: 10, SMOKE: 2}
MAX_TIMES_FASTEST = 3.0
HERE = Path(__file__).parent


async def measure_crowd(folder: Path, size: Size) -> list[Target]:
    """Prints each user's time; raises where an answer holds anything of another."""
    if not at_hand([openwebui.VERSION], size):
        return []
    with processes.serving(folder / "server", AGENTS=str(HERE / "agents.py")) as (server, _):
        async with running(folder) as webui:
            await webui.install("callboard", install_pipe.PIPE, {"CALLBOARD_URL": server})
            users = [await webui.sign_up(f"user{number}") for number in range(USERS[size])]
            await users[0].ask("callboard.echo", "warm up")
            started = time.time()
            markers = [f"marker-of-user-{number}" for number in range(USERS[size])]
            answers = await asyncio.gather(
                *(user.ask("callboard.echo", marker) for user, marker in zip(users, markers, strict=True))
            )
    seconds = [answer.saved_at - started for answer in answers]
    for marker, answer in zip(markers, answers, strict=True):
        words = answer.content.split()
        if words.count(marker) != ECHOES or set(words) - {marker} - {str(number) for number in range(ECHOES)}:
            raise AssertionError(f"the answer of {marker} is not its own and whole: {answer.content[:200]!r}")
    rows = [(f"user {number}", milliseconds(one)) for number, one in enumerate(seconds)]
    print_table(f"{USERS[size]} users at once, {ECHOES} chunks each", ("who", "saved after ms"), rows)
    return [Target("the slowest user beside the fastest", max(seconds) / min(seconds), MAX_TIMES_FASTEST, "×")]
