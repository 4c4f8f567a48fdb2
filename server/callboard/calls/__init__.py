"""Tools, and the life of a tool call, the same for every kind of agent.

`ToolCall` (as the model wrote it) → `ResolvedCall` or `RejectedCall` → `RunningCall` → `EndedCall`. `CallRunner` takes
a call from one to the next. Readers of a run's events make the last two with `follow_call`. This package knows neither
models nor storage.
"""

from callboard.calls.approval import ALWAYS, ASKING, PENDING, AnswerTo, Approval
from callboard.calls.arguments import ReadArguments, checked_schema_arguments, is_blank, is_empty
from callboard.calls.call import (
    MAX_NAME_CHARS,
    CallContext,
    EndedCall,
    RejectedCall,
    ResolvedCall,
    RunningCall,
    Spend,
    StartedCall,
    ToolCall,
    follow_call,
    format_error,
    spend_nothing,
    write_arguments,
)
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
from callboard.calls.executor import check_arguments, error_text, execute, runs_in_thread
from callboard.calls.forms import ask_until_fitting, read_form, show_default
from callboard.calls.limits import Allowance, Budget, Limits
from callboard.calls.masking import mask_result
from callboard.calls.runner import CallRunner, EventBuffer
from callboard.calls.running_tool import RunningTool, contain, containing, current_tool, tools_around
from callboard.calls.tool import (
    ClientTool,
    NeedsConfirmation,
    Tool,
    ToolResult,
    as_result,
    new_external_id,
    refuse_special_parameter,
)

__all__ = [
    "ALWAYS",
    "ASKING",
    "MAX_NAME_CHARS",
    "PENDING",
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
    "ReadArguments",
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
    "ask_until_fitting",
    "check_arguments",
    "checked_schema_arguments",
    "contain",
    "containing",
    "current_tool",
    "error_text",
    "execute",
    "follow_call",
    "format_error",
    "is_blank",
    "is_empty",
    "mask_result",
    "new_external_id",
    "read_form",
    "refuse_special_parameter",
    "report_status",
    "runs_in_thread",
    "show_default",
    "spend_nothing",
    "tool",
    "tools_around",
    "write_arguments",
]
