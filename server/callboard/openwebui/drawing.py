"""Draws answers as the pipe does: tool calls as `<details>` blocks, progress as status lines. The pipe's code does it.

Open WebUI 0.6 to 0.12 draw each block as a card in the message's text, and `details_parser` reads the blocks back. The
model's text between blocks can neither fake a block nor break one.
"""

import json
import re
import time
from io import StringIO
from typing import Any

from callboard._bundled_files import load_bundled_module
from callboard.openwebui.details_parser import GUARDED
from callboard.text import cut_note
from callboard_protocol import CallEvent, Done, Error, Event, Plan, Status, ToolCallStart
from callboard_protocol.endings import FAILED, find_ending

SHOWN_CHARS = 10_000
"""The number of characters of a result that its block contains at most. Open WebUI shows no more at once."""

UNUSED_FIELDS = {"tool_args", "result", "files", "embeds"}
"""The large fields of events that status lines do not use."""

_PIPE = load_bundled_module("pipe/callboard_pipe.py")

# The tags, in the content of a chat completion, of which Open WebUI makes a thought: `DEFAULT_REASONING_TAGS` in its
# `utils/middleware.py`. The pipe's text is not searched for them.
_THOUGHT = re.compile(r"<(?=(?:think|thinking|reason|reasoning|[Tt]hought)[\s>]|\|begin_of_thought\|)|◁(?=think▷)")
_UNFINISHED_THOUGHT = re.compile(r"[<◁][\w|]{0,20}\Z")


def write_block(start: ToolCallStart, result: str, *, error_code: str | None = None, is_from_text: bool = False) -> str:
    """Return the block of a call that has ended. It must begin and end a line.

    `result` is the text that people read, for failed calls the error. `error_code` is None for a successful call.
    `is_from_text` says that the call was read from the model's text.
    """
    ending = None if error_code is None else find_ending(error_code)
    call = _PIPE.Call(
        id=start.tool_call_id,
        name=start.tool_name,
        title=_PIPE.make_title(start.label),
        mark=_PIPE.FROM_TEXT if is_from_text else "",
        label=ending.label if ending and ending is not FAILED else "",
        state="done" if error_code is None else _PIPE.ENDINGS.get(error_code, _PIPE.FAILED).card,
        arguments=json.dumps(start.tool_args),
        result=cut_note(result[:SHOWN_CHARS], len(result)),
        round=str(start.round_index),
    )
    return str(call.render())


def close_markdown(text: str) -> str:
    """Return the text to append so that no code fence or HTML block of `text` is open; "" if none is."""
    return str(_PIPE.close_markdown(text))


class DetailsWriter:
    """Writes an answer with blocks as a stream. Each method returns the text to append.

    A stream cannot take text back, so a block is written when its call has ended.
    """

    def __init__(self) -> None:
        self._held = ""
        self._text = StringIO()
        """The text since the last block."""
        self._has_block = False

    def add_text(self, delta: str) -> str:
        """Add the model's text. Its end is held back while it may be the beginning of a tag."""
        text = self._held + delta
        unfinished = _UNFINISHED_THOUGHT.search(text) or _PIPE.UNFINISHED.search(text)
        held_from = unfinished.start() if unfinished else len(text)
        self._held = text[held_from:]
        return self._append(text[:held_from])

    @staticmethod
    def break_tags(thought: str) -> str:
        """Return a piece of reasoning in which, and in whose continuation, no tag begins."""
        return thought.replace("<", GUARDED)

    def add_block(self, block: str) -> str:
        """Add a call's block on separate lines, after closing any open code fence or HTML."""
        before = self.finish()
        if self._text.tell():
            before += close_markdown(self._text.getvalue()) + "\n\n"
        elif self._has_block:
            before += "\n"
        self._text = StringIO()
        self._has_block = True
        return before + block

    def finish(self) -> str:
        """Add the text that was held back."""
        text = self._held
        self._held = ""
        return self._append(text)

    def _append(self, text: str) -> str:
        text = _THOUGHT.sub("\\g<0>\u200b", _PIPE.UNSAFE.sub(GUARDED, text))
        is_after_block = self._has_block and not self._text.tell()
        if is_after_block:
            # Open WebUI groups adjacent blocks, and blank text between two would split the group.
            text = text.lstrip()
        if not text:
            return ""
        self._text.write(text)
        return f"\n\n{text}" if is_after_block else text


class StatusLines:
    """Makes the data of Open WebUI's `status` events, the lines above an answer that show the progress of one run."""

    def __init__(self) -> None:
        self._activity = _PIPE.Activity(time.monotonic, _PIPE.Totals())
        self._activity.apply({"type": "run_start"})

    def lines(self, event: Event) -> list[dict[str, Any]]:
        """Return the data of the `status` events that this event adds."""
        activity = self._activity
        count = len(activity.lines)
        match event:
            case Done(finish_reason=reason):
                activity.close("stopped" if reason == "cancelled" else "")
            case Error():
                activity.close("failed")
            case Status() | Plan() | CallEvent():
                activity.apply(event.model_dump(mode="json", exclude=UNUSED_FIELDS))
            case _:
                pass
        return [{"description": line.words, "done": True} for line in activity.lines[count:]]
