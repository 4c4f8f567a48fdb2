"""Translates the events of an Agno run for a turn."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from io import StringIO
from typing import Any

from agno.models.message import Citations
from agno.models.response import ToolExecution
from agno.run.agent import RunOutput
from agno.run.base import BaseRunOutputEvent
from agno.run.team import TeamRunOutput

from callboard.calls import ToolCall, ToolResult
from callboard.errors import AgentError
from callboard.frameworks.agno.hooks import AgnoHooks
from callboard.frameworks.agno.messages import to_files
from callboard.frameworks.agno.requirements import Output
from callboard.frameworks.progress import to_status_report
from callboard.frameworks.turn import is_same_output, to_source, to_text

Item = BaseRunOutputEvent | Output

GUARDRAIL_ERRORS = frozenset({"input_check_error", "output_check_error"})
"""The types of the errors with which a guardrail or hook refuses a question or an answer."""

REFUSED_QUESTION = "[A rule of the agent refused this message.]"
"""What the model reads in later turns in the place of a question that a guard or hook has refused."""

DELEGATE_PREFIX = "delegate_task_to_member"
"""The beginning of the names of the tools with which a team's leader starts one member or all of them."""


class EventTranslator:
    """Translates one run, with the runs of a team's members and the continuations after a pause."""

    def __init__(self, hooks: AgnoHooks) -> None:
        self._hooks = hooks
        self._turn = hooks.turn
        self._run_id: str | None = None
        self._answer = StringIO()
        self._continued_at = 0
        """The length of the answer when the run began or was continued: Agno's final content has the rest of it."""
        self._reasoning = StringIO()
        self._open_calls: dict[str, str | None] = {}
        """The open calls by id.

        The value is the member's id for a delegation, empty for all members; None for other calls.
        """
        self._runs_after_limit: set[str] = set()

    async def follow(self, run: AsyncGenerator[Item, None]) -> Output | None:
        """Translate the run until it ends. If it pauses for the user, return the output that holds its requirements.

        Raises `ModelError`, or `AgentError` if the run fails for another reason.
        """
        output = None
        paused = False
        self._continued_at = len(self._answer.getvalue())
        async with aclosing(run):
            async for item in run:
                if isinstance(item, RunOutput | TeamRunOutput):
                    output = item
                    self._note_question(item)
                elif self._has_ignored_limit(item):
                    break
                elif self._is_from_other_run(item):
                    await self._handle_call_event(item)
                else:
                    paused = paused or _event_name(item) == "RunPaused"
                    self._handle_event(item)
                    await self._handle_call_event(item)
        return output if paused else None

    def _note_question(self, output: Output) -> None:
        """Note the words that a hook or a guard of the agent has put in the place of the user's."""
        asked = self._hooks.question
        told = output.input.input_content if output.input else None
        if asked is not None and isinstance(told, str) and told != asked:
            self._turn.context.replaced[asked] = told

    def _is_from_other_run(self, event: Any) -> bool:
        """Return whether the event belongs to a team member's run, or to a run whose events a tool passes on."""
        run_id = getattr(event, "run_id", None)
        self._run_id = self._run_id or run_id
        return _is_from_member(event) or run_id not in (None, self._run_id)

    def _has_ignored_limit(self, event: BaseRunOutputEvent) -> bool:
        """Return whether the model is asked again after a request without tools. Agno itself would never stop."""
        if _event_name(event) != "ModelRequestStarted" or not self._turn.calls.is_over_limit:
            return False
        run_id = str(getattr(event, "run_id", ""))
        was_asked = run_id in self._runs_after_limit
        self._runs_after_limit.add(run_id)
        return was_asked

    def _handle_event(self, event: Any) -> None:
        """Translate an event of the agent itself. The text of a team's members is left to their leader to repeat."""
        match _event_name(event):
            case "RunContent":
                self._add_answer(event)
            case "RunIntermediateContent":
                # A draft, from which the output model writes the answer.
                self._turn.add_reasoning(to_text(event.content))
            case "ReasoningContentDelta":
                self._add_reasoning(event.reasoning_content)
            case "ReasoningStep":
                # The event repeats all earlier reasoning.
                self._add_reasoning(event.reasoning_content.removeprefix(self._reasoning.getvalue()))
            case "RunCompleted" if not self._answer.getvalue():
                # Repeats the streamed text. Structured answers are not streamed and come only here.
                self._add_answer(event)
            case "RunCompleted":
                self._apply_final_content(event.content)
            case "ParserModelResponseStarted" if self._answer.getvalue():
                # The text so far is a draft, from which the parser model makes the answer.
                self._turn.rewind()
                self._answer = StringIO()
                self._continued_at = 0
            case "RunError":
                self._fail(event)
            case "RunCancelled":
                raise asyncio.CancelledError(event.reason)

    def _fail(self, event: Any) -> None:
        if self._hooks.failure is not None:
            raise self._hooks.failure
        if event.error_type in GUARDRAIL_ERRORS:
            self._turn.discard_answer()
        if event.error_type == "input_check_error" and self._hooks.question:
            # Guards check only the newest question, not this one in the history of a later turn.
            self._turn.context.replaced[self._hooks.question] = REFUSED_QUESTION
        reason = str(event.content or "it gave no reason").rstrip(".")
        raise AgentError(f"Agno ended the run of '{self._hooks.agent_id}': {reason}. See Agno's log for details.")

    async def _handle_call_event(self, event: Any) -> None:
        match _event_name(event):
            case "ToolCallStarted":
                await self._start_call(event)
            case "CustomEvent":
                self._report_status(event)
            case "ToolCallCompleted" | "ToolCallError":
                self._end_call(event)

    def _add_answer(self, event: Any) -> None:
        if reasoning := getattr(event, "reasoning_content", None):
            self._add_reasoning(reasoning)
        if text := to_text(event.content):
            self._answer.write(text)
            self._turn.add_text(text)
        self._add_sources(getattr(event, "citations", None))

    def _apply_final_content(self, content: object) -> None:
        """Replace the model's text by the run's final content if a hook has changed it."""
        draft = self._turn.draft
        answer = self._answer.getvalue()[self._continued_at :]
        if not draft.strip() or content is None:
            return
        if self._hooks.has_dropped_answer and isinstance(content, str):
            # Agno may still have the text of the dropped answer before this one.
            is_same = content.strip().endswith(draft.strip())
        else:
            is_same = is_same_output(content, answer if isinstance(content, str) else draft)
        if is_same:
            return
        # Text before the last call cannot be taken back.
        before = answer.removesuffix(draft)
        self._turn.replace_text(to_text(content).removeprefix(before))

    def _add_sources(self, citations: Citations | None) -> None:
        for cited in (citations.urls if citations else None) or ():
            if cited.url:
                self._turn.add_source(to_source(cited.url, cited.title))

    def _add_reasoning(self, thought: str) -> None:
        self._reasoning.write(thought)
        self._turn.add_reasoning(thought)

    async def _start_call(self, event: Any) -> None:
        tool: ToolExecution = event.tool
        call_id = tool.tool_call_id or ""
        name = tool.tool_name or ""
        arguments = tool.tool_args or {}
        parent_call_id = self._find_parent_call(event) if self._is_from_other_run(event) else ""
        self._open_calls[call_id] = str(arguments.get("member_id", "")) if name.startswith(DELEGATE_PREFIX) else None
        written = self._hooks.arguments.get(call_id, arguments)
        await self._turn.calls.start(ToolCall(call_id, name, written, parent_call_id=parent_call_id))

    def _find_parent_call(self, event: Any) -> str:
        """Return the id of the open call that started the event's run."""
        if not _is_from_member(event):
            return next(reversed(self._open_calls), "")
        # A member may be a team.
        member_id = str(getattr(event, "agent_id", "") or getattr(event, "team_id", ""))
        delegations = {call_id: member for call_id, member in self._open_calls.items() if member is not None}
        matching = [call_id for call_id, member in delegations.items() if member in ("", member_id)]
        return (matching or list(delegations) or [""])[-1]

    def _report_status(self, event: Any) -> None:
        """Show the progress that a tool or a hook of the run reports."""
        report = to_status_report(event)
        if event.tool_call_id:
            self._turn.calls.report(event.tool_call_id, report)
        elif report.message:
            self._turn.show_status(report.message)

    def _end_call(self, event: Any) -> None:
        tool: ToolExecution = event.tool
        call_id = tool.tool_call_id or ""
        self._open_calls.pop(call_id, None)
        if tool.tool_call_error:
            self._turn.calls.fail(call_id, str(tool.result))
        else:
            media = [
                medium for kind in ("images", "videos", "audio", "files") for medium in getattr(event, kind, None) or ()
            ]
            self._turn.calls.complete(call_id, ToolResult(tool.result or "", files=tuple(to_files(media))))


def _event_name(event: BaseRunOutputEvent) -> str:
    """Return the event's name, without the prefix of a team leader's events."""
    return str(getattr(event, "event", "")).removeprefix("Team")


def _is_from_member(event: BaseRunOutputEvent) -> bool:
    return bool(getattr(event, "parent_run_id", None))
