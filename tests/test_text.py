"""Text that everything down the line can hold."""

from hypothesis import given
from hypothesis import strategies as st

from callboard.text import storable


def test_characters_that_utf8_or_a_database_cannot_store_are_replaced() -> None:
    assert storable("a\0b\ud800c\udc00") == "a\ufffdb\ufffdc\ufffd"
    assert storable("\ud83c\udfad") == "🎭"


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_all_other_text_is_unchanged(text: str) -> None:
    assert storable(text) == text
