"""Tools, and the life of a tool call, the same for every kind of agent.

`ToolCall` (as the model wrote it) → `ResolvedCall` or `RejectedCall` → `RunningCall` → `EndedCall`. `CallRunner` takes
a call from one to the next. Readers of a run's events make the last two with `follow_call`. This package knows neither
models nor storage.
"""

from callboard.calls.approval import AnswerTo, Approval
from callboard.calls.arguments import checked_schema_arguments
from callboard.calls.call import (
    MAX_NAME_CHARS,
    CallContext,
    RejectedCall,
    ResolvedCall,
    Spend,
    ToolCall,
    spend_nothing,
    write_arguments,
)
from callboard.calls.client_tool import ClientTool, new_external_id
from callboard.calls.context import (
    Quotas,
    Services,
    SourceNumbers,
    StatusChannel,
    StatusReport,
    ToolContext,
    report_status,
)
from callboard.calls.decorator import tool
from callboard.calls.event_buffer import EventBuffer
from callboard.calls.executor import check_arguments, error_text, execute, runs_in_thread
from callboard.calls.limits import Allowance, Budget, Limits
from callboard.calls.masking import mask_result
from callboard.calls.result import ToolResult, as_result
from callboard.calls.runner import CallRunner
from callboard.calls.running_tool import RunningTool, contain, containing, running_tool
from callboard.calls.started_call import EndedCall, RunningCall, StartedCall, follow_call, format_error
from callboard.calls.tool import NeedsConfirmation, Tool, refuse_special_parameter

__all__ = [
    "MAX_NAME_CHARS",
    "Allowance",
    "AnswerTo",
    "Approval",
    "Budget",
    "CallContext",
    "CallRunner",
    "ClientTool",
    "EndedCall",
    "EventBuffer",
    "Limits",
    "NeedsConfirmation",
    "Quotas",
    "RejectedCall",
    "ResolvedCall",
    "RunningCall",
    "RunningTool",
    "Services",
    "SourceNumbers",
    "Spend",
    "StartedCall",
    "StatusChannel",
    "StatusReport",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolResult",
    "as_result",
    "check_arguments",
    "checked_schema_arguments",
    "contain",
    "containing",
    "error_text",
    "execute",
    "follow_call",
    "format_error",
    "mask_result",
    "new_external_id",
    "refuse_special_parameter",
    "report_status",
    "running_tool",
    "runs_in_thread",
    "spend_nothing",
    "tool",
    "write_arguments",
]
