"""Logging: one line for each event, without secrets; tracebacks without values of variables."""

import logging
import sys
from collections import Counter
from time import monotonic

import structlog

from callboard._trace_context import current_trace_id
from callboard.redaction import Redaction, current_redaction


def _make_console_renderer() -> structlog.dev.ConsoleRenderer:
    # Rich's tracebacks, which are structlog's default, show the values of variables, wrap lines inside of secrets, and
    # block the event loop for seconds.
    return structlog.dev.ConsoleRenderer(colors=True, exception_formatter=structlog.dev.plain_traceback)


def use_plain_tracebacks() -> None:
    """Replace structlog's default tracebacks, unless the application has configured structlog."""
    if not structlog.is_configured():
        renderer = _make_console_renderer()
        structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])


def set_up_logging(level: str, redaction: Redaction | None = None) -> None:
    """Log to standard error, as readable lines in a terminal and as JSON otherwise.

    The secrets of `redaction` and of the current run are removed from every line, including lines of libraries.
    """
    known = redaction or Redaction()
    number = logging.getLevelNamesMapping()[level.upper()]
    is_terminal = sys.stderr.isatty()
    renderer: structlog.types.Processor = (
        _make_console_renderer() if is_terminal else structlog.processors.JSONRenderer()
    )
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        _add_trace,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if not is_terminal:
        shared.append(structlog.processors.format_exc_info)

    def write_line(_logger: object, _method: str, line: structlog.typing.EventDict) -> str:
        # Applied to the finished line, which includes tracebacks, values of any type and names.
        return _redact(str(line), known)

    structlog.configure(
        processors=[*shared, renderer, write_line],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        # Each line is one write, because several workers write to the same file.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_SecretlessFormatter("%(levelname)s %(name)s: %(message)s", known))
    handler.addFilter(_Throttle())
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler])
    # The SDK logs unreadable messages in full and with a traceback; `skills.mcp` logs their causes.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


def _add_trace(_logger: object, _method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Add the id of the current trace, if there is one."""
    if trace_id := current_trace_id():
        line["trace_id"] = trace_id
    return line


class _Throttle(logging.Filter):
    """Passes the same record once a second, with the number of times that it was left out in the second before.

    Otherwise a client can fill the disk. asyncio logs thousands of errors a second while no descriptor is left for a
    connection that waits: https://github.com/python/cpython/issues/151615.
    """

    def __init__(self) -> None:
        super().__init__()
        self._second_began = monotonic()
        self._counts = Counter[str]()
        self._counts_before = Counter[str]()

    def filter(self, record: logging.LogRecord) -> bool:
        if monotonic() - self._second_began >= 1:
            self._second_began = monotonic()
            self._counts_before, self._counts = self._counts, Counter()
        error = record.exc_info and record.exc_info[1]
        content = f"{record.name} {record.msg} {record.args} {error}"
        self._counts[content] += 1
        if self._counts[content] > 1:
            return False
        if (left_out := self._counts_before[content] - 1) > 0:
            record.msg = f"{record.msg} (repeated {left_out} times)"
        return True


class _SecretlessFormatter(logging.Formatter):
    """Formats log records of libraries, without secrets."""

    def __init__(self, layout: str, known: Redaction) -> None:
        super().__init__(layout)
        self._known = known

    def format(self, record: logging.LogRecord) -> str:
        return _redact(super().format(record), self._known)


def _redact(line: str, known: Redaction) -> str:
    run = current_redaction.get()
    return known(line if run is None else run(line))
