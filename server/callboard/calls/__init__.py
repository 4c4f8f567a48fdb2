"""Tools, and the life of a tool call, the same for every kind of agent.

`ToolCall` (as the model wrote it) → `ResolvedCall` or `RejectedCall` → `RunningCall` → `EndedCall`. `CallRunner` takes
a call from one to the next. Readers of a run's events make the last two with `follow_call`. This package knows neither
models nor storage.
"""

from callboard.calls.call import EndedCall, RunningCall, ToolCall, follow_call
from callboard.calls.context import Services, StatusChannel, StatusReport, ToolContext, report_status
from callboard.calls.decorator import tool
from callboard.calls.runner import CallRunner
from callboard.calls.tool import Tool, ToolResult

__all__ = [
    "CallRunner",
    "EndedCall",
    "RunningCall",
    "Services",
    "StatusChannel",
    "StatusReport",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolResult",
    "follow_call",
    "report_status",
    "tool",
]
