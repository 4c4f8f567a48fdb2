"""An application's store: in memory as in a database, and a skill's own part of it."""

import re
from pathlib import Path
from typing import Any

import pytest

from callboard import Agent, Callboard, Settings, Skill
from callboard.storage import Store
from callboard.testing import Call, FakeModel, client

HOW_TO = Path(__file__).parent.parent / "docs" / "how-to" / "own-skill.md"


def notes_skill() -> Skill:
    """The skill that the documents show."""
    [block] = [block for block in re.findall(r"```python\n(.*?)```", HOW_TO.read_text(), re.DOTALL) if "NOTES" in block]
    shown: dict[str, Any] = {}
    exec(compile(block, "own-skill.md", "exec", dont_inherit=True), shown)
    skill = shown["NOTES"]
    assert isinstance(skill, Skill)
    return skill


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_a_skill_stores_data_of_its_users(tmp_path: Path, kind: str) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'notes.db'}"
    store = None if kind == "memory" else Store(url)
    model = FakeModel(
        [Call("note", title="tea", text="green")], "Kept.", [Call("read_notes")], "Tea.", [Call("read_notes")], "None."
    )
    board = Callboard(
        [Agent("clerk", skills=[notes_skill()])], model=model, store=store, settings=Settings(data_dir=tmp_path)
    )
    with client(board) as callboard:
        callboard.run("Note it.", user={"id": "ann"})
        read = callboard.run("What is there?", user={"id": "ann"})
        others = callboard.run("What is there?", user={"id": "bob"})
    assert read.results == {"read_notes": '{"tea":"green"}'}
    assert others.results == {"read_notes": "{}"}


def test_without_a_store_data_is_in_memory_and_not_on_disk(tmp_path: Path) -> None:
    board = Callboard(
        [Agent("clerk", skills=[notes_skill()])],
        model=FakeModel([Call("read_notes")], "Nothing."),
        store=None,
        settings=Settings(data_dir=tmp_path / "data"),
    )
    with client(board) as callboard:
        callboard.run("What is there?", user={"id": "ann"}, chat_id="chat")
        kept = callboard.http.get("/v1/chats/chat/messages", params={"user_id": "ann"}).json()["messages"]
        assert callboard.http.get("/health").status_code == 200
    assert [message["role"] for message in kept] == ["user", "assistant", "tool", "assistant"]
    assert not list(tmp_path.rglob("*.db*"))


def test_a_store_that_is_given_is_used_again_by_the_next_application(tmp_path: Path) -> None:
    store = Store(f"sqlite+aiosqlite:///{tmp_path / 'board.db'}")
    for turn in range(2):
        board = Callboard(
            [Agent("clerk")], model=FakeModel("Hello."), store=store, settings=Settings(data_dir=tmp_path)
        )
        with client(board) as callboard:
            callboard.run("Hi.", chat_id="chat")
            kept = callboard.http.get("/v1/chats/chat/messages").json()["messages"]
        assert len(kept) == 2 * (turn + 1)
