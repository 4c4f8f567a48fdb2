"""`callboard chat --approvals`, `--approve` and `--deny`: lists and answers the calls that wait for approval."""

import argparse
import json
from datetime import UTC, datetime

from callboard._cli.chat.client import ServerClient
from callboard._cli.chat.visible import make_line, make_visible
from callboard.errors import CallboardError


def _format_arguments(arguments: str) -> str:
    """Return the arguments without JSON's escapes, because a model could hide text in escapes."""
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except ValueError:
        return arguments


async def answer_approvals(client: ServerClient, options: argparse.Namespace) -> int:
    """List the calls that wait for approval, or answer the approval that the options name.

    After the answer, the server continues the run. The command does not wait for it. Raises `CallboardError` if the
    approval is unknown.
    """
    waiting = {f"{one['run_id']}:{one['tool_call_id']}": one for one in await client.list_approvals()}
    wanted = options.approve or options.deny
    if wanted is None:
        for approval_id, approval in waiting.items():
            since = datetime.fromtimestamp(approval["waiting_since"], UTC)
            about = f"agent {approval['agent_id']}, chat {approval['chat_id']}, since {since:%Y-%m-%d %H:%M} UTC"
            print(f"{make_line(approval_id)}  {make_line(approval['tool_name'])}")
            print(f"{make_visible(_format_arguments(approval['arguments']))}\n{make_line(about)}\n")
        if not waiting:
            print("No call waits for approval.")
        return 0
    if wanted not in waiting:
        raise CallboardError(f"no call {make_line(wanted)!r} waits for approval; callboard chat --approvals lists them")
    approval = waiting[wanted]
    await client.answer(approval["run_id"], approval["request_id"], options.approve is not None)
    print(f"{'Approved' if options.approve else 'Refused'}: {make_line(approval['tool_name'])}. Its run continues.")
    return 0
