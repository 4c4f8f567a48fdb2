"""Exports runs and calls as curl commands and as Python tests. Does no I/O."""

import json
import re
import shlex
from itertools import groupby
from urllib.parse import quote, urlencode

from callboard._inspect.shown import ShownCall, ShownRun

MAX_COMPARED_CHARS = 1_000
"""The length limit of results that an exported test compares."""

_NOT_IN_NAMES = re.compile(r"\W+", re.ASCII)


def write_curl(address: str, agent_id: str, question: str, *, has_key: bool) -> str:
    """Return a curl command that asks the agent the same question."""
    body = json.dumps({"agent": agent_id, "messages": [{"role": "user", "content": question}]})
    key = ' -H "Authorization: Bearer $(callboard key)"' if has_key else ""
    path = shlex.quote(f"{address}/v1/runs")
    return f"curl -N {path}{key} -H 'Content-Type: application/json' \\\n  -d {shlex.quote(body)}\n"


def write_call_curl(address: str, chat_id: str, call_id: str, user_id: str | None, *, has_key: bool) -> str:
    """Return a curl command that reads a stored call."""
    key = ' -H "Authorization: Bearer $(callboard key)"' if has_key else ""
    query = {"chat_id": chat_id} if user_id is None else {"chat_id": chat_id, "user_id": user_id}
    # Escaped, because curl reads braces and brackets as lists of URLs, and pages replace invisible characters.
    path = shlex.quote(f"{address}/v1/tool-calls/{quote(call_id, safe='')}?{urlencode(query)}")
    return f"curl {path}{key}\n"


def write_test(run: ShownRun) -> str:
    """Return a Python test in which a fake model makes the calls of the run again, and the agent's tools run.

    The test compares the results, except long ones.
    """
    name = _NOT_IN_NAMES.sub("_", run.agent_id or "agent").strip("_").lower() or "agent"
    calls = sorted(run.calls, key=lambda call: call.place)
    rounds = [list(of_round) for _, of_round in groupby(calls, key=lambda call: call.start.round_index)]
    answers = [f"        [{', '.join(map(_write_call, of_round))}],\n" for of_round in rounds]
    last = {call.name: call.result_text for call in calls}
    compared = {tool: result for tool, result in last.items() if result and len(result) <= MAX_COMPARED_CHARS}
    expected = "".join(
        f"    assert run.results[{tool!r}] == {result.removeprefix('Error: ')!r}\n" for tool, result in compared.items()
    )
    return (
        "from callboard import Callboard\n"
        "from callboard.testing import Call, FakeModel, client\n\n"
        "from my_agents import agent  # yours, without a model of its own\n\n\n"
        f"def test_{name}_does_it_again(tmp_path, monkeypatch):\n"
        '    monkeypatch.setenv("CALLBOARD_DATA_DIR", str(tmp_path))\n'
        "    model = FakeModel(\n"
        f"{''.join(answers)}"
        f"        {run.text or 'Done.'!r},\n"
        "    )\n"
        "    with client(Callboard([agent], model=model)) as callboard:\n"
        f"        run = callboard.run({run.question or '?'!r}, approve=True)\n"
        f"    assert list(run.results) == {list(last)!r}\n{expected}"
    )


def _write_call(call: ShownCall) -> str:
    return f"Call({call.name!r}, {call.arguments_text!r})"
