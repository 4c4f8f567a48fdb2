"""Logging: one line an event, without secrets, and tracebacks without the values of variables."""

import logging
import sys

import structlog

from callboard._redaction import Redaction, current
from callboard._trace_context import current_trace_id

# Other tracebacks show what variables hold, break a secret where a line ends, and where Rich is installed take seconds,
# in which the event loop stands still.
_CONSOLE = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)


def use_plain_tracebacks() -> None:
    """Replace the tracebacks of structlog's defaults; an application that has configured structlog keeps its own."""
    if not structlog.is_configured():
        structlog.configure(processors=[*structlog.get_config()["processors"][:-1], _CONSOLE])


def set_up_logging(level: str, redaction: Redaction | None = None) -> None:
    """Log one line an event to standard error: coloured in a terminal, JSON elsewhere.

    No line, ours or a library's, holds what `redaction` or that of the run at work knows as secret.
    """
    known = redaction or Redaction()
    number = logging.getLevelNamesMapping()[level.upper()]
    renderer: structlog.types.Processor = _CONSOLE if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        _add_trace,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if not sys.stderr.isatty():
        shared.append(structlog.processors.format_exc_info)

    def write_line(_logger: object, _method: str, line: structlog.typing.EventDict) -> str:
        # Last, on the finished line: tracebacks, values of any type and names are in it by now.
        return _take_out_secrets(str(line), known)

    structlog.configure(
        processors=[*shared, renderer, write_line],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        # A line in one piece: several workers write to the same place.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    handler = logging.StreamHandler()
    handler.setFormatter(_SecretlessFormatter("%(levelname)s %(name)s: %(message)s", known))
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler])
    # The SDK logs what it cannot read with all its text and a traceback; `skills.mcp` says what matters of that.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


def _add_trace(_logger: object, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Say of which trace a line is, where there is one."""
    if trace_id := current_trace_id():
        line["trace_id"] = trace_id
    return line


class _SecretlessFormatter(logging.Formatter):
    """A formatter of what libraries log, without secrets."""

    def __init__(self, layout: str, known: Redaction) -> None:
        super().__init__(layout)
        self._known = known

    def format(self, record: logging.LogRecord) -> str:
        return _take_out_secrets(super().format(record), self._known)


def _take_out_secrets(line: str, known: Redaction) -> str:
    run = current.get()
    return known(line if run is None else run(line))
