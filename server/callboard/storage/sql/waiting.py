"""Calls that wait for their approval: their runs have ended without the calls' results, and have kept their requests.

The answer to one of its questions, and a cancellation, begin such a run again in their own transaction; any server then
continues it, like a run whose server has stopped.
"""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, and_, exists, func, or_, select, update

from callboard.storage.sql.database import Database
from callboard.storage.sql.queries import read_page
from callboard.storage.sql.tables import chats, is_owned_by, messages, now, run_inputs, runs
from callboard.storage.values import GivenAnswer, Page, WaitingApproval
from callboard_protocol.events import APPROVAL_PREFIX

UNOWNED = ""
"""The owner of a run that any server may take."""
WAITS = and_(runs.c.ended_at.is_not(None), runs.c.request.is_not(None))
"""The condition of a run that has ended with calls that wait."""
IS_OPEN = or_(runs.c.ended_at.is_(None), WAITS)
"""The condition of a run that goes on, or that an answer begins again."""


def begin_again(connection: Connection, run_id: str, *conditions: ColumnElement[bool]) -> bool:
    """Begin a run again if calls of it wait and it meets the conditions; return whether it has begun.

    Its age does not count the time in which it waited.
    """
    begun_at = runs.c.begun_at + now() - runs.c.ended_at
    begin = update(runs).where(runs.c.id == run_id, WAITS, *conditions)
    return connection.execute(begin.values(ended_at=None, begun_at=begun_at, owner=UNOWNED)).rowcount > 0


def begin_again_if_answered(connection: Connection, run_id: str, questions: Sequence[str]) -> bool:
    """Begin a run again that has just ended, if it was cancelled or one of the questions was answered before."""
    of_run = and_(run_inputs.c.run_id == run_id, run_inputs.c.question.in_(questions))
    is_answered = exists().where(of_run, run_inputs.c.answer.is_not(None))
    return begin_again(connection, run_id, or_(runs.c.is_cancelled, is_answered))


def let_question_wait(connection: Connection, run_id: str, question: str) -> None:
    """Mark a question as waiting, and delete an answer without a value, unless it has an answer with a value."""
    of_question = and_(run_inputs.c.run_id == run_id, run_inputs.c.question == question)
    answer = connection.scalar(select(run_inputs.c.answer).where(of_question).with_for_update())
    if answer is None or GivenAnswer.from_json(answer).value is None:
        since = func.coalesce(run_inputs.c.waiting_since, now())
        connection.execute(update(run_inputs).where(of_question).values(answer=None, waiting_since=since))


async def list_waiting_approvals(
    database: Database, user_id: object, limit: int, cursor: str | None, chat_id: str | None
) -> Page[WaitingApproval]:
    """Return a page of waiting approvals; see `Store.waiting_approvals`."""
    in_chat = [runs.c.chat_id == chat_id] if chat_id else []
    is_waiting = and_(run_inputs.c.waiting_since.is_not(None), run_inputs.c.answer.is_(None), IS_OPEN)
    # The columns of an index: otherwise the database would read all messages.
    call_id = func.substr(run_inputs.c.question, len(APPROVAL_PREFIX) + 1)
    of_call = and_(messages.c.chat_id == runs.c.chat_id, messages.c.tool_call_id == call_id)
    query = (
        select(
            messages.c.id,
            runs.c.id.label("run_id"),
            run_inputs.c.question.label("request_id"),
            messages.c.tool_call_id,
            messages.c.tool_name,
            messages.c.arguments,
            runs.c.agent_id,
            runs.c.chat_id,
            runs.c.message_id,
            runs.c.user_id,
            chats.c.user_name,
            run_inputs.c.waiting_since,
        )
        .join(runs, runs.c.id == run_inputs.c.run_id)
        .join(messages, of_call)
        .join(chats, chats.c.id == messages.c.chat_id)
        .where(is_waiting, is_owned_by(runs.c.user_id, user_id), *in_chat)
    )

    def read(connection: Connection) -> Page[WaitingApproval]:
        rows, next_cursor = read_page(connection, query, messages.c.id, limit, cursor)
        found = [{name: value for name, value in row._mapping.items() if name != "id"} for row in rows]
        return Page(tuple(WaitingApproval(**one) for one in found), next_cursor)

    return await database.read(read)
