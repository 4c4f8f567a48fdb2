"""Reads the text of chat messages, and adds instructions for the model."""

from collections.abc import Sequence

from callboard.models.model import ChatDict

MUST_CALL = "Do not answer in text: your answer must be a call of one of these tools."
"""The instruction that replaces `tool_choice: required`."""


def content_text(content: object) -> str:
    """Return a message's content as text: a string unchanged, the text parts of a list joined."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def with_instructions(messages: Sequence[ChatDict], instructions: str) -> list[ChatDict]:
    """Return the messages with `instructions` appended to the system message, or with a new system message."""
    if messages and messages[0]["role"] in ("system", "developer"):
        said = content_text(messages[0].get("content"))
        return [{**messages[0], "content": f"{said}\n\n{instructions}" if said else instructions}, *messages[1:]]
    return [{"role": "system", "content": instructions}, *messages]
