"""Converts OpenAI chat messages for models without native tools: calls and results become plain text."""

from collections.abc import Sequence

from callboard._formats.wording import Wording
from callboard.models import ChatDict, content_text


def convert_calls_to_text(messages: Sequence[ChatDict], wording: Wording) -> tuple[list[ChatDict], bool]:
    """Return the messages with calls and results as text, and whether there were any calls.

    Results become a user message. It is joined with a user message that follows, because many chat templates require
    that user and assistant alternate.
    """
    worded: list[ChatDict] = []
    names: dict[str, str] = {}
    results: list[tuple[str, str]] = []
    for message in messages:
        if message["role"] == "tool":
            name = names.get(message.get("tool_call_id", ""), "tool")
            results.append((name, content_text(message.get("content"))))
            continue
        _add_results(worded, results, wording)
        if calls := message.get("tool_calls"):
            names |= {call["id"]: call["function"]["name"] for call in calls}
            written = [
                wording.call(call["function"]["name"], call["function"]["arguments"], call.get("thought", ""))
                for call in calls
            ]
            said = content_text(message.get("content"))
            content = "\n".join([*([said] if said.strip() else []), *written])
            message = {key: value for key, value in message.items() if key != "tool_calls"} | {"content": content}
        _add(worded, message)
    _add_results(worded, results, wording)
    return worded, bool(names)


def with_instructions(messages: Sequence[ChatDict], instructions: str) -> list[ChatDict]:
    """Return the messages with `instructions` appended to the system message, or with a new system message."""
    if messages and messages[0]["role"] in ("system", "developer"):
        said = content_text(messages[0].get("content"))
        return [{**messages[0], "content": f"{said}\n\n{instructions}" if said else instructions}, *messages[1:]]
    return [{"role": "system", "content": instructions}, *messages]


def _add_results(worded: list[ChatDict], results: list[tuple[str, str]], wording: Wording) -> None:
    if results:
        worded.append({"role": "user", "content": wording.results(results)})
        results.clear()


def _add(worded: list[ChatDict], message: ChatDict) -> None:
    before = worded[-1] if worded else None
    if before is None or message["role"] != "user" or before["role"] != "user":
        worded.append(message)
    elif isinstance(before["content"], str) and isinstance(message["content"], str):
        worded[-1] = {**message, "content": f"{before['content']}\n\n{message['content']}"}
    else:
        worded[-1] = {**message, "content": [*_parts(before["content"]), *_parts(message["content"])]}


def _parts(content: object) -> list[object]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]
