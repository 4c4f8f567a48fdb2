"""`callboard chat` lists the calls that wait for approval, and approves or refuses one."""

from pathlib import Path

import pytest

from callboard_protocol import Done
from tests.cli.terminal import Output, in_pipes
from tests.parking import ParkedRun, parked_run


async def chat(parked: ParkedRun, folder: Path, *options: str) -> Output:
    url = str(parked.service.client.base_url)
    return await in_pipes(folder, "chat", "--url", url, "--user", "ann", *options)


@pytest.mark.parametrize(("option", "words", "paid"), [("--approve", "Approved", [7]), ("--deny", "Refused", [])])
async def test_a_call_that_waits_is_listed_and_answered(
    tmp_path: Path, option: str, words: str, paid: list[int]
) -> None:
    async with parked_run(tmp_path) as parked:
        listed = await chat(parked, tmp_path, "--approvals")
        first, *lines = listed.out.splitlines()
        approval_id, tool_name = first.split()
        assert tool_name == "refund"
        assert '{"seat": 7}' in lines
        assert any(line.startswith("agent till, chat chat, since 20") for line in lines)
        answered = await chat(parked, tmp_path, option, approval_id)
        assert (answered.out, answered.exit_code) == (f"{words}: refund. Its run continues.\n", 0)
        assert (await parked.read_rest())[-1] == Done()
        assert parked.paid == paid
        assert (await chat(parked, tmp_path, "--approvals")).out == "No call waits for approval.\n"
        unknown = await chat(parked, tmp_path, option, approval_id)
        assert unknown.exit_code == 1
        assert "callboard chat --approvals lists them" in unknown.beside
