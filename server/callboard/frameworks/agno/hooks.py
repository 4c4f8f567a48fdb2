"""Agno's events, told to a turn."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from agno.models.message import Citations
from agno.models.response import ToolExecution
from agno.run.agent import RunOutput
from agno.run.base import BaseRunOutputEvent
from agno.run.team import TeamRunOutput
from pydantic import BaseModel
from pydantic_core import to_json

from callboard.calls import ToolCall, ToolResult
from callboard.errors import AgentError
from callboard.frameworks.agno.messages import files_of
from callboard.frameworks.agno.model import Hooks
from callboard.frameworks.progress import report_of
from callboard.frameworks.turn import source_of

Output = RunOutput | TeamRunOutput
Item = BaseRunOutputEvent | Output

CHECK_FAILURES = frozenset({"input_check_error", "output_check_error"})
"""The types of the errors by which a guardrail or a hook refuses a question or an answer."""

DELEGATE = "delegate_task_to_member"
"""The beginning of the names of the tools by which a team's leader starts a member, or all of them."""


class EventTranslator:
    """The translator of one run, and what it has told so far; a team's members and continued runs are part of it."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._turn = hooks.turn
        self._run_id: str | None = None
        self._said = False
        self._text = ""
        self._reasoning = ""
        self._cited: set[str] = set()
        self._open: dict[str, str | None] = {}
        """The open calls, those that delegate to a member with its id: empty for all members."""
        self._last_requests: set[str] = set()

    async def follow(self, run: AsyncGenerator[Item, None]) -> Output | None:
        """Tell the run until it ends; where it waits for the user, return what it waits with.

        Raises `ModelError`, and `AgentError` where the run failed otherwise.
        """
        output = None
        paused = False
        async with aclosing(run):
            async for item in run:
                if isinstance(item, RunOutput | TeamRunOutput):
                    output = item
                elif self._is_over(item):
                    break
                elif self._is_inner(item):
                    await self._tell_call(item)
                else:
                    paused = paused or _read_kind(item) == "RunPaused"
                    self._tell(item)
                    await self._tell_call(item)
        return output if paused else None

    def _is_inner(self, event: Any) -> bool:
        """Return whether another run tells the event: a member's, or one whose events a tool passes on."""
        run_id = getattr(event, "run_id", None)
        self._run_id = self._run_id or run_id
        return _is_member(event) or run_id not in (None, self._run_id)

    def _is_over(self, event: BaseRunOutputEvent) -> bool:
        """Return whether the model asks on though it got no tools: Agno itself has no end."""
        if _read_kind(event) != "ModelRequestStarted" or not self._turn.calls.is_over_limit:
            return False
        run_id = str(getattr(event, "run_id", ""))
        asked = run_id in self._last_requests
        self._last_requests.add(run_id)
        return asked

    def _tell(self, event: Any) -> None:
        """Tell what the agent itself says; what a team's member says is its leader's to repeat."""
        match _read_kind(event):
            case "RunContent":
                self._say(event)
            case "RunIntermediateContent":
                # The draft for the output model, whose text is the answer.
                self._turn.think(_to_text(event.content))
            case "ReasoningContentDelta":
                self._think(event.reasoning_content)
            case "ReasoningStep":
                # With all that was reasoned before it.
                self._think(event.reasoning_content.removeprefix(self._reasoning))
            case "RunCompleted" if not self._said:
                # It repeats what was said, but for structured answers: those come here alone.
                self._say(event)
            case "RunCompleted":
                self._complete(event.content)
            case "ParserModelResponseStarted" if self._said:
                # What was said is the draft that this model makes the answer of.
                self._turn.rewind()
                self._text = ""
                self._said = False
            case "RunError":
                self._fail(event)
            case "RunCancelled":
                raise asyncio.CancelledError(event.reason)

    def _fail(self, event: Any) -> None:
        if self._hooks.failure is not None:
            raise self._hooks.failure
        if event.error_type in CHECK_FAILURES:
            self._turn.refuse()
        said = str(event.content or "it did not say why").rstrip(".")
        raise AgentError(f"Agno ended the run of '{self._hooks.agent_id}': {said}. Its log has the whole story.")

    async def _tell_call(self, event: Any) -> None:
        match _read_kind(event):
            case "ToolCallStarted":
                await self._start(event)
            case "CustomEvent":
                self._report(event)
            case "ToolCallCompleted" | "ToolCallError":
                self._end(event)

    def _say(self, event: Any) -> None:
        if reasoning := getattr(event, "reasoning_content", None):
            self._think(reasoning)
        if text := _to_text(event.content):
            self._said = True
            self._text += text
            self._turn.say(text)
        self._cite(getattr(event, "citations", None))

    def _complete(self, content: object) -> None:
        """Say the answer as a hook has left it, in place of what the model has said."""
        said = self._turn.draft
        text = said if self._hooks.has_dropped else self._text
        if not said.strip() or content is None or _is_same(content, text, said):
            return
        # Nothing before the last call can be taken back.
        before = self._text.removesuffix(said)
        self._turn.replace(_to_text(content).removeprefix(before))

    def _cite(self, citations: Citations | None) -> None:
        for cited in (citations.urls if citations else None) or ():
            if cited.url and cited.url not in self._cited:
                self._cited.add(cited.url)
                self._turn.cite(source_of(cited.url, cited.title))

    def _think(self, thought: str) -> None:
        self._reasoning += thought
        self._turn.think(thought)

    async def _start(self, event: Any) -> None:
        tool: ToolExecution = event.tool
        call_id = tool.tool_call_id or ""
        name = tool.tool_name or ""
        arguments = tool.tool_args or {}
        parent_call_id = self._find_parent(event) if self._is_inner(event) else ""
        self._open[call_id] = str(arguments.get("member_id", "")) if name.startswith(DELEGATE) else None
        written = self._hooks.arguments.get(call_id, arguments)
        await self._turn.calls.start(ToolCall(call_id, name, written, parent_call_id=parent_call_id))

    def _find_parent(self, event: Any) -> str:
        """Return the open call that started the run which tells the event."""
        if not _is_member(event):
            return next(reversed(self._open), "")
        # A member may be a team.
        member_id = str(getattr(event, "agent_id", "") or getattr(event, "team_id", ""))
        delegates = {call_id: asked for call_id, asked in self._open.items() if asked is not None}
        asked_so = [call_id for call_id, asked in delegates.items() if asked in ("", member_id)]
        return (asked_so or list(delegates) or [""])[-1]

    def _report(self, event: Any) -> None:
        """Tell what a tool reports of itself, or a hook of the run."""
        report = report_of(event)
        if event.tool_call_id:
            self._turn.calls.report(event.tool_call_id, report)
        elif report.message:
            self._turn.show_status(report.message)

    def _end(self, event: Any) -> None:
        tool: ToolExecution = event.tool
        call_id = tool.tool_call_id or ""
        self._open.pop(call_id, None)
        if tool.tool_call_error:
            self._turn.calls.fail(call_id, str(tool.result))
        else:
            media = [one for kind in ("images", "videos", "audio", "files") for one in getattr(event, kind, None) or ()]
            self._turn.calls.complete(call_id, ToolResult(tool.result or "", files=tuple(files_of(media))))


def _read_kind(event: BaseRunOutputEvent) -> str:
    """Return the event's name; a team's leader has the same ones."""
    return str(getattr(event, "event", "")).removeprefix("Team")


def _is_member(event: BaseRunOutputEvent) -> bool:
    return bool(getattr(event, "parent_run_id", None))


def _is_same(content: object, text: str, draft: str) -> bool:
    """Return whether a run's content is what was said: all of its text, or the object in its last part."""
    if isinstance(content, str):
        return content.strip() == text.strip() or (text is draft and content.strip().endswith(text.strip()))
    if not isinstance(content, BaseModel):
        return True
    try:
        return type(content).model_validate_json(draft) == content
    except ValueError:
        # Agno reads JSON amid other words too.
        return True


def _to_text(content: object) -> str:
    match content:
        case None:
            return ""
        case str():
            return content
        case BaseModel():
            return content.model_dump_json()
        case _:
            return to_json(content, serialize_unknown=True).decode()
