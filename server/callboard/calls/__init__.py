"""The life of a tool call, the same for every agent: announced, approved, run in time, ended, within a turn's limits.

`ToolCall` (as a model wrote it) → `ResolvedCall` or `RejectedCall` → `ToolOutcome`; a `CallRecord` is kept
of it meanwhile. `CallRunner` takes it from one to the next. Above: the tool loop and the adapters of other
frameworks, which say what a call means. Below: formats, tools. Knows neither models nor storage.
"""

from callboard.calls.approval import AnswerTo, Approval
from callboard.calls.call import (
    CallContext,
    CallRecord,
    RejectedCall,
    ResolvedCall,
    Spend,
    ToolCall,
    ToolOutcome,
    spend_nothing,
)
from callboard.calls.event_buffer import EventBuffer
from callboard.calls.limits import Allowance, Budget, Limits
from callboard.calls.masking import mask_result
from callboard.calls.runner import CallRunner
from callboard.calls.running_tool import RunningTool, contain, containing, running_tool

__all__ = [
    "Allowance",
    "AnswerTo",
    "Approval",
    "Budget",
    "CallContext",
    "CallRecord",
    "CallRunner",
    "EventBuffer",
    "Limits",
    "RejectedCall",
    "ResolvedCall",
    "RunningTool",
    "Spend",
    "ToolCall",
    "ToolOutcome",
    "contain",
    "containing",
    "mask_result",
    "running_tool",
    "spend_nothing",
]
