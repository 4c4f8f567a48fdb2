"""What Open WebUI 0.6.43 and 0.7.2 do with a pipe's stream, as their handlers are documented.

Responses-style dicts have no `choices` and are skipped. `{"event": …}` goes to the event emitter. Chunks are appended,
and once there are any, the chunks alone are the message: what was replaced before is overwritten, on screen and in the
database. Stop is a `CancelledError` at the pipe's await; what was streamed until then is kept.
"""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

_TOOL_CALL = re.compile(r'<details\s+type="tool_calls"([^>]*)>([\s\S]*?)</details>', re.IGNORECASE)
_OTHER = re.compile(r'<details\s+type="(?:reasoning|code_interpreter)"[^>]*>.*?</details>', re.IGNORECASE | re.DOTALL)


@dataclass
class OldOpenWebUI:
    """One message: `screens` are the states that the page showed, `saved` is the content in the database."""

    screens: list[str] = field(default_factory=list)
    saved: str = ""
    streamed: str = ""
    sources: list[Any] = field(default_factory=list)
    usage: dict[str, int] = field(default_factory=dict)

    @property
    def screen(self) -> str:
        return self.screens[-1]

    async def consume(self, updates: AsyncIterator[Any]) -> None:
        """Read the stream to its end as `process_chat_response` does."""
        try:
            async for update in updates:
                self.apply(update)
        finally:
            # The last save; an empty one is undone by the tab, which saves its own history.
            self.saved = self.streamed or self.saved

    def apply(self, update: dict[str, Any]) -> None:
        if event := update.get("event"):
            self._event(event)
        self.usage = update.get("usage", self.usage)
        if choices := update.get("choices"):
            self.streamed += choices[0]["delta"].get("content", "")
            self.screens.append(self.streamed)

    def _event(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "replace":
                self.saved = event["data"]["content"]
                self.screens.append(self.saved)
            case "message":
                self.saved += event["data"]["content"]
                self.screens.append(self.saved)
            case "source":
                self.sources.append(event["data"])

    def next_turn(self) -> str:
        """The answer in the next turn's messages: the browser puts each block's result, still escaped, in its place."""

        def result(block: re.Match[str]) -> str:
            attributes = dict(re.findall(r'(\w+)="([^"]*)"', block[1]))
            return f'"{attributes["result"]}"' if attributes.get("result") else block[0]

        return _TOOL_CALL.sub(result, _OTHER.sub("", self.saved)).strip()


async def stopped(webui: OldOpenWebUI, updates: AsyncIterator[Any], drawn: asyncio.Event) -> None:
    """Presses stop once `drawn` is set; returns when the pipe has ended."""
    task = asyncio.create_task(webui.consume(updates))
    await drawn.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def unescaped(text: str) -> str:
    """A result as the model reads it in the next turn."""
    return html.unescape(text)
