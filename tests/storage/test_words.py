"""The words of texts and queries: which words are equal, and that a query has no operators."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard._history.turns import message_text
from callboard.storage.words import MAX_INDEXED_CHARS, MAX_TERMS, excerpt, index_text, parse_query, to_fts5, to_tsquery


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ann's café, CAFÉ!", "ann cafe cafe"),
        ("snake_case and e-mail", "snake case and e mail"),
        ("Straße ﬁn Ⅻ", "strasse fin xii"),
        ("我喜欢吃辣", "我 喜 欢 吃 辣"),
        ("한국어 좋아", "한국어 좋아"),
        ("ตาแมว", "ต า แ ม ว"),
        ('"*()^:{} -- NEAR', "near"),
        ("🎭", ""),
    ],
)
def test_case_accents_and_signs_do_not_count(text: str, words: str) -> None:
    assert index_text(text) == words


def test_a_query_asks_for_each_word_once_and_for_so_many_at_most() -> None:
    # A single letter only if there is nothing else.
    assert parse_query("a plan b") == [("plan",)]
    assert parse_query("c") == [("c",)]
    assert parse_query("tea, Tea and e-mail") == [("tea",), ("and",), ("e", "mail")]
    assert len(parse_query(" ".join(f"w{number}" for number in range(1000)))) == MAX_TERMS
    assert len(index_text("word " * 500_000)) <= MAX_INDEXED_CHARS


def test_a_word_finds_longer_ones_and_a_plural_its_singular() -> None:
    assert to_fts5(parse_query("cats")) == '"cat" *'
    assert to_tsquery(parse_query("allergies")) == "(allerg:*)"
    assert to_fts5(parse_query("is 喜欢")) == '"is" OR "喜 欢"'
    assert to_tsquery(parse_query("is 喜欢")) == "(is) | (喜 <-> 欢)"


@given(st.text(max_size=60))
def test_any_text_makes_a_query_that_sqlite_can_read(text: str) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE t USING fts5(words)")
    if wanted := parse_query(text):
        assert database.execute("SELECT * FROM t WHERE t MATCH ?", (to_fts5(wanted),)).fetchall() == []
    database.close()


@given(st.text(alphabet=st.characters(categories=["L", "N", "Mn", "Zs"]), max_size=40))
def test_a_text_is_found_by_its_own_words(text: str) -> None:
    stored = f" {index_text(text)} "
    assert all(f" {' '.join(term)} " in stored for term in parse_query(text))


def test_an_excerpt_stands_around_the_first_word_that_was_asked_for() -> None:
    text = f"{'before ' * 100}the Allergy test\n\nsaid nuts {'after ' * 100}"
    shown = excerpt(text, parse_query("allergies"), 60)
    assert "the Allergy test said nuts" in shown
    assert shown.startswith("…")
    assert shown.endswith("…")
    assert excerpt("short", parse_query("else"), 60) == "short"


def test_of_a_list_of_parts_only_the_text_is_read() -> None:
    parts = (
        '[{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,cat"}}]'
    )
    assert message_text(parts) == "look"
    for text in ('[{"rows": 1}]', "[{broken", "plain", '[{"type": "text"'):
        assert message_text(text) == text
    assert message_text(None) == ""
