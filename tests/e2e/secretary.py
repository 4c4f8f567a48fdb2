"""The agent of the tests of approvals that wait: it writes down each email that it sends, at the gate of the test."""

import os
from pathlib import Path

from callboard import Agent, Skill, register, tool
from tests.gates import wait_at_gate

DATA = Path(os.environ["CALLBOARD_DATA_DIR"])


@tool(requires_confirmation=True)
async def send_email(to: str, body: str) -> str:
    """Send an email.

    Args:
        to: The address.
        body: The text.
    """
    with (DATA / "sent").open("a") as file:
        file.write(f"{to}: {body}\n")
    await wait_at_gate(DATA)
    return f"Sent to {to}."


register(Agent("secretary", "Sends emails.", (Skill("mail", "Sends emails.", tools=(send_email,)),)))
