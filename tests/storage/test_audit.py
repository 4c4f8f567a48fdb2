"""The audit is append-only: the database refuses changes."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection

from callboard.errors import StorageError
from callboard.storage import AuditEntry, AuditFilter, Store

CALL = AuditEntry("call", "ann", "scripts", "clerk", "chat", "run", "t1", "look", '{"at": "the sea"}')
A_MOMENT = 1e-15
"""Days that are over at once."""


async def entries(store: Store, **wanted: Any) -> list[AuditEntry]:
    found = store.audit().read(AuditFilter(**wanted))
    return [entry async for page in found for entry in page]


async def test_entries_are_read_in_the_order_in_which_they_were_written(store: Store) -> None:
    written = [CALL, replace(CALL, kind="ended", arguments=None, outcome="timeout")]
    written += [replace(CALL, tool_call_id=f"more-{number}") for number in range(450)]
    for entry in written:
        await store.audit().write(entry)
    found = await entries(store)
    assert [replace(entry, at=None, id=None) for entry in found] == written
    assert sorted(entry.at or 0 for entry in found) == [entry.at for entry in found]


async def test_names_longer_than_their_columns_are_truncated(store: Store) -> None:
    long = replace(CALL, tool_name="look" + "k" * 5_000, arguments='{"at": "' + "x" * 3_000_000 + '"}')
    await store.audit().write(long)
    await store.audit().write(replace(long, kind="ended", arguments=None, outcome="far" * 100))
    call, end = await entries(store)
    assert call.arguments == long.arguments
    assert (call.tool_name or "").startswith("lookkkk")
    assert (end.outcome or "").startswith("farfar")


async def test_a_filter_returns_only_matching_entries(store: Store) -> None:
    other = AuditEntry("ended", "bob", None, "cook", "kitchen", "r2", "t2", "stir", outcome="complete")
    for entry in (CALL, other):
        await store.audit().write(entry)
    [first, second] = await entries(store)
    assert second.at is not None
    for name, value in {
        "kind": "ended",
        "user_id": "bob",
        "agent_id": "cook",
        "chat_id": "kitchen",
        "run_id": "r2",
        "tool_name": "stir",
        "since": second.at,
    }.items():
        assert [entry.id for entry in await entries(store, **{name: value})][-1:] == [second.id], name
        if name != "since":
            assert len(await entries(store, **{name: value})) == 1
    assert first not in await entries(store, until=0)
    assert await entries(store, user_id="bob", tool_name="look") == []


ATTACKS = {
    "change a row": "UPDATE audit SET user_id = 'eve'",
    "change nothing": "UPDATE audit SET user_id = user_id",
    "shorten its time": "UPDATE audit SET keep_until = 0",
    "delete a row": "DELETE FROM audit WHERE user_id = 'ann'",
    "delete all": "DELETE FROM audit",
    "change arguments": "UPDATE audit_arguments SET arguments = '{}'",
    "take arguments away": "DELETE FROM audit_arguments",
    "put a row over another": "INSERT INTO audit (id, at, kind) SELECT id, 0, 'call' FROM audit",
    "upsert": "INSERT INTO audit (id, at, kind) SELECT id, 0, 'call' FROM audit WHERE true "
    "ON CONFLICT (id) DO UPDATE SET user_id = 'eve'",
    "upsert arguments": "INSERT INTO audit_arguments SELECT audit_id, '{}' FROM audit_arguments WHERE true "
    "ON CONFLICT (audit_id) DO UPDATE SET arguments = '{}'",
}
ON_SQLITE = {
    "replace": "INSERT OR REPLACE INTO audit (id, at, kind) SELECT id, 0, 'call' FROM audit",
    "replace by update": "UPDATE OR REPLACE audit SET id = id",
    "replace arguments": "INSERT OR REPLACE INTO audit_arguments SELECT audit_id, '{}' FROM audit_arguments",
}
ON_POSTGRESQL = {
    "truncate": "TRUNCATE audit CASCADE",
    "truncate arguments": "TRUNCATE audit_arguments",
}


async def test_the_database_refuses_to_change_or_delete_entries(store: Store) -> None:
    await store.audit().write(CALL)
    await store.audit().write(replace(CALL, user_id="bob"), keep_days=30)
    before = await entries(store)
    own = ON_SQLITE if store.database.file else ON_POSTGRESQL
    for name, statement in {**ATTACKS, **own}.items():

        def attack(connection: Connection, statement: str = statement) -> None:
            connection.exec_driver_sql(statement)

        with pytest.raises(StorageError):
            await store.database.write(attack)
        assert await entries(store) == before, name
    await store.check()


async def test_deleted_arguments_cannot_be_replaced(store: Store) -> None:
    await store.audit().write(CALL)

    def make_old(connection: Connection) -> None:
        connection.exec_driver_sql("INSERT INTO audit (at, kind) VALUES (1000, 'call')")

    await store.database.write(make_old)
    [_, old] = await entries(store)

    def forge(connection: Connection) -> None:
        connection.exec_driver_sql(f"INSERT INTO audit_arguments VALUES ({old.id}, '{{}}')")

    with pytest.raises(StorageError):
        await store.database.write(forge)
    assert (await entries(store))[1].arguments is None


async def test_forgetting_a_user_deletes_arguments_and_keeps_entries(store: Store) -> None:
    for user in ("ann", "bob", "ann"):
        await store.audit().write(replace(CALL, user_id=user))
    forgotten = await store.forget_user("ann", "nightly")
    assert forgotten["audited_arguments"] == 2
    found = await entries(store)
    assert [(entry.kind, entry.user_id, entry.arguments) for entry in found] == [
        ("call", "ann", None),
        ("call", "bob", CALL.arguments),
        ("call", "ann", None),
        ("forgotten", "ann", None),
    ]
    assert found[-1].key == "nightly"
    # Who has nothing that could be forgotten is not written of.
    assert (await store.forget_user("ann"))["audited_arguments"] == 0
    assert (await store.forget_user("eve"))["audited_arguments"] == 0
    assert len(await entries(store)) == 4
    # What comes after it is kept anew.
    await store.audit().write(CALL)
    assert (await entries(store))[-1].arguments == CALL.arguments


async def test_entries_after_forgetting_a_user_are_protected_again(store: Store) -> None:
    await store.audit().write(CALL)
    await store.forget_user("ann")
    await store.audit().write(CALL)
    with pytest.raises(StorageError):
        await store.database.write(lambda connection: connection.exec_driver_sql("DELETE FROM audit_arguments"))
    assert (await entries(store))[-1].arguments == CALL.arguments


async def test_entries_are_dropped_only_after_their_retention(store: Store) -> None:
    await store.audit().write(CALL, keep_days=A_MOMENT)
    await store.audit().write(replace(CALL, user_id="bob"), keep_days=1)
    await store.audit().write(replace(CALL, user_id="eve"))
    assert await store.audit().drop() == 1
    assert await store.audit().drop() == 0
    assert [(entry.user_id, entry.arguments) for entry in await entries(store)] == [
        ("bob", CALL.arguments),
        ("eve", CALL.arguments),
    ]
