"""The audit of one run: what its calls were, who agreed to them, and how they ended.

A call runs only once it stands in the audit, and so does an approval: where that cannot be written the run ends.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import structlog

from callboard.errors import StorageError
from callboard.storage import Audit, AuditEntry, AuditKind

COMPLETE = "complete"

Writing = Coroutine[Any, Any, None]

_log = structlog.get_logger(__name__)


class RunAudit:
    """The audit of a run; `about` is what every entry says of it, `find_key` returns whose key answered a question.

    With `audit` None nothing is written.

    `writing` is what is written beside an entry: at one time, so that a store has both in one transaction.
    """

    def __init__(
        self,
        audit: Audit | None = None,
        about: AuditEntry | None = None,
        keep_days: float = 0,
        find_key: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self._audit = audit
        self._about = about or AuditEntry("call")
        self._keep_days = keep_days
        self._find_key = find_key

    async def call(
        self, writing: Writing, tool_call_id: str, tool_name: str, arguments: str, *, is_handed_over: bool = False
    ) -> None:
        """Write down a call that is about to run, here or at the client; raises `StorageError`."""
        kind: AuditKind = "handed_over" if is_handed_over else "call"
        entry = replace(self._about, kind=kind, arguments=arguments)
        await self._write(writing, replace(entry, tool_call_id=tool_call_id, tool_name=tool_name))

    async def approval(self, writing: Writing, tool_call_id: str, tool_name: str, request_id: str) -> None:
        """Write down that the run's user has agreed to a call, which only they can; raises `StorageError`.

        The answer may have come with another key than the run.
        """
        entry = replace(self._about, kind="approved", key=self._find_key(request_id))
        await self._write(writing, replace(entry, tool_call_id=tool_call_id, tool_name=tool_name))

    async def end(self, writing: Writing, tool_call_id: str, tool_name: str, error_code: str | None) -> None:
        """Write down how a call ended; where that cannot be, the log has it."""
        entry = replace(self._about, kind="ended", outcome=error_code or COMPLETE)
        try:
            await self._write(writing, replace(entry, tool_call_id=tool_call_id, tool_name=tool_name))
        except StorageError as error:
            _log.warning("end_not_audited", tool_call_id=tool_call_id, outcome=entry.outcome, error=str(error))

    async def _write(self, writing: Writing, entry: AuditEntry) -> None:
        if self._audit is None:
            await writing
            return
        auditing = self._audit.write(entry, self._keep_days)
        # Each to its end: what comes next must not overtake the other.
        for result in await asyncio.gather(writing, auditing, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
