"""The tools `profile` and `self`, as a model calls them."""

from typing import Any

import pytest

from callboard.errors import InvalidArguments, ToolError
from callboard.skills import Profile, SelfNotes
from callboard.storage import Store
from tests.skills.calling import Caller


@pytest.mark.parametrize(("value", "kind"), [(42, "number"), (False, "boolean"), (["a", "b"], "list")])
async def test_a_new_attribute_has_the_type_of_its_value(store: Store, value: object, kind: str) -> None:
    ann = Caller(store)
    await ann.call(Profile(), action="set", name="Thing", value=value)
    kept = (await ann.call(Profile(), action="get", name="thing"))["thing"]
    assert kept == {"type": kind, "value": value}
    assert type(kept["value"]) is type(value)


async def test_date_is_validated_and_stored_as_date(store: Store) -> None:
    ann = Caller(store)
    await ann.call(Profile(), action="set", name="birthday", value="1990-02-28", type="date")
    with pytest.raises(InvalidArguments, match="'birthday' is of type date: give a date as YYYY-MM-DD"):
        await ann.call(Profile(), action="set", name="birthday", value="1990-02-30")
    assert (await ann.call(Profile(), action="get"))["profile"] == {"birthday": {"type": "date", "value": "1990-02-28"}}


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("number", True, "a number"),
        ("number", float("nan"), "a number"),
        ("boolean", 1, "true or false"),
        ("text", "x" * 3_000, "a text of at most"),
        ("list", ["x"] * 200, "a list of at most"),
    ],
)
async def test_value_of_wrong_type_is_refused_with_expected_type(
    store: Store, kind: str, value: object, words: str
) -> None:
    with pytest.raises(InvalidArguments, match=words):
        await Caller(store).call(Profile(), action="set", name="x", value=value, type=kind)
    assert (await Caller(store).call(Profile(), action="get"))["profile"] == {}


async def test_attribute_keeps_its_type_until_another_is_given_whatever_its_spelling(store: Store) -> None:
    ann = Caller(store)
    await ann.call(Profile(), action="set", name="Home town", value=40)
    with pytest.raises(InvalidArguments, match="'home_town' is of type number"):
        await ann.call(Profile(), action="set", name="home-town", value="forty")
    await ann.call(Profile(), action="set", name="home-town", value="forty", type="text")
    kept = (await ann.call(Profile(), action="get"))["profile"]
    assert kept == {"home_town": {"type": "text", "value": "forty"}}
    assert await ann.call(Profile(), action="delete", name="HOME_TOWN") == {"deleted": "home_town"}


async def test_unknown_attribute_is_answered_with_existing_ones(store: Store) -> None:
    ann = Caller(store)
    for action in ("get", "delete"):
        with pytest.raises(ToolError, match="the profile is empty"):
            await ann.call(Profile(), action=action, name="diet")
    await ann.call(Profile(), action="set", name="age", value=40)
    for action in ("get", "delete"):
        with pytest.raises(ToolError, match="no attribute 'diet': it has age"):
            await ann.call(Profile(), action=action, name="diet")
        with pytest.raises(ToolError, match="the profile is empty"):
            await ann.but(user_id="bob").call(Profile(), action=action, name="age")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"action": "set", "value": 1}, "'set' needs the argument 'name'"),
        ({"action": "set", "name": "x"}, "'set' needs the argument 'value'"),
        ({"action": "delete"}, "'delete' needs the argument 'name'"),
        ({"action": "set", "name": "!?", "value": 1}, "1 to 64 letters"),
    ],
)
async def test_arguments_that_do_not_fit_are_named(store: Store, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArguments, match=words):
        await Caller(store).call(Profile(), **arguments)


async def test_an_agent_reads_its_newest_description_and_its_last_notes(store: Store) -> None:
    ann = Caller(store)
    assert await ann.call(SelfNotes(), action="get") == {"description": None, "notes": []}
    for number in range(12):
        await ann.call(SelfNotes(), action="reflect", text=f"Note {number}")
    assert await ann.call(SelfNotes(), action="develop", text="I am brief.") == {"version": 1}
    assert await ann.call(SelfNotes(), action="develop", text="I am brief and kind.") == {"version": 2}
    for action in ("reflect", "develop"):
        with pytest.raises(InvalidArguments, match=f"'{action}' needs the argument 'text'"):
            await ann.call(SelfNotes(), action=action)
    known = await ann.call(SelfNotes(), action="get")
    assert (known["description"]["version"], known["description"]["text"]) == (2, "I am brief and kind.")
    assert [note["text"] for note in known["notes"]] == [f"Note {number}" for number in range(11, 1, -1)]
    assert (await ann.call(SelfNotes(), action="get", version=1))["description"]["text"] == "I am brief."


async def test_notes_are_separate_by_agent_and_user(store: Store) -> None:
    ann = Caller(store)
    await ann.call(SelfNotes(), action="develop", text="I am brief.")
    for other in (ann.but(user_id="bob"), ann.but(agent_id="media")):
        assert (await other.call(SelfNotes(), action="get"))["description"] is None
        with pytest.raises(ToolError, match="there is none yet"):
            await other.call(SelfNotes(), action="get", version=1)
    with pytest.raises(ToolError, match="the newest is version 1"):
        await ann.call(SelfNotes(), action="get", version=2)
