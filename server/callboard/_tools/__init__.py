"""Tools: what a model may call, and what runs it. Knows neither models nor the loop."""

from callboard._tools.arguments import checked_schema_arguments
from callboard._tools.client_tool import ClientTool, new_external_id, written_arguments
from callboard._tools.context import (
    Quotas,
    Services,
    SourceNumbers,
    StatusChannel,
    StatusReport,
    ToolContext,
    report_status,
)
from callboard._tools.decorator import tool
from callboard._tools.executor import check_arguments, error_text, execute, runs_in_thread
from callboard._tools.result import ToolResult, as_result
from callboard._tools.tool import NeedsConfirmation, Tool, refuse_special_parameter

__all__ = [
    "ClientTool",
    "NeedsConfirmation",
    "Quotas",
    "Services",
    "SourceNumbers",
    "StatusChannel",
    "StatusReport",
    "Tool",
    "ToolContext",
    "ToolResult",
    "as_result",
    "check_arguments",
    "checked_schema_arguments",
    "error_text",
    "execute",
    "new_external_id",
    "refuse_special_parameter",
    "report_status",
    "runs_in_thread",
    "tool",
    "written_arguments",
]
