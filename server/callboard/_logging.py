"""Logging: one line an event, without secrets, and tracebacks without the values of variables."""

import logging
import sys
from typing import TextIO

import structlog

from callboard._redaction import Redaction, current
from callboard._trace_context import current_trace_id


def _make_console_renderer(*, has_colours: bool) -> structlog.dev.ConsoleRenderer:
    # Rich's tracebacks, which are structlog's default, show what variables hold, break a secret where a line ends, and
    # take seconds, in which the event loop stands still.
    return structlog.dev.ConsoleRenderer(colors=has_colours, exception_formatter=structlog.dev.plain_traceback)


def use_plain_tracebacks() -> None:
    """Replace the tracebacks of structlog's defaults; an application that has configured structlog keeps its own."""
    if not structlog.is_configured():
        renderer = _make_console_renderer(has_colours=True)
        structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])


def set_up_logging(level: str, redaction: Redaction | None = None, file: TextIO | None = None) -> None:
    """Log one line an event: to standard error, coloured in a terminal and JSON elsewhere, or for people into a file.

    No line, ours or a library's, holds what `redaction` or that of the run at work knows as secret.
    """
    known = redaction or Redaction()
    number = logging.getLevelNamesMapping()[level.upper()]
    out = file or sys.stderr
    is_for_people = file is not None or out.isatty()
    renderer: structlog.types.Processor = (
        _make_console_renderer(has_colours=out.isatty()) if is_for_people else structlog.processors.JSONRenderer()
    )
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        _add_trace,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if not is_for_people:
        shared.append(structlog.processors.format_exc_info)

    def write_line(_logger: object, _method: str, line: structlog.typing.EventDict) -> str:
        # Last, on the finished line: tracebacks, values of any type and names are in it by now.
        return _take_out_secrets(str(line), known)

    structlog.configure(
        processors=[*shared, renderer, write_line],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        # A line in one piece: several workers write to the same place.
        logger_factory=structlog.WriteLoggerFactory(out),
    )
    handler = logging.StreamHandler(out)
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
