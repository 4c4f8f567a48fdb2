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
def test_a_store_keeps_chats_and_the_data_of_skills_and_only_a_database_outlives_its_application(
    tmp_path: Path, kind: str
) -> None:
    store = None if kind == "memory" else Store(f"sqlite+aiosqlite:///{tmp_path / 'notes.db'}")
    answers = (
        [Call("note", title="tea", text="green")],
        "Kept.",
        [Call("read_notes")],
        "Tea.",
        [Call("read_notes")],
        "?",
    )
    settings = Settings(data_dir=tmp_path / "data")
    for turn in range(2):
        board = Callboard(
            [Agent("clerk", skills=[notes_skill()])], model=FakeModel(*answers), store=store, settings=settings
        )
        with client(board) as callboard:
            callboard.run("Note it.", user={"id": "ann"}, chat_id="chat")
            read = callboard.run("What is there?", user={"id": "ann"})
            others = callboard.run("What is there?", user={"id": "bob"})
            kept = callboard.http.get("/v1/chats/chat/messages", params={"user_id": "ann"}).json()["messages"]
        assert read.results == {"read_notes": '{"tea":"green"}'}
        assert others.results == {"read_notes": "{}"}
        turns = turn + 1 if kind == "sqlite" else 1
        assert [message["role"] for message in kept] == ["user", "assistant", "tool", "assistant"] * turns
    assert [file.name for file in tmp_path.rglob("*.db")] == (["notes.db"] if kind == "sqlite" else [])
