"""Text of models and tools is safe to print in a terminal."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard._cli.chat.visible import make_line, make_visible

ANYTHING = st.text(st.characters(categories=("L", "M", "N", "P", "S", "Z", "C")))


@given(ANYTHING)
def test_no_control_character_is_left(text: str) -> None:
    left = {character for character in make_visible(text) if unicodedata.category(character) in ("Cc", "Cf", "Cs")}
    assert left <= set("\n\t\u200c\u200d")


@given(ANYTHING)
def test_a_line_is_one_line(text: str) -> None:
    assert len(make_line(text).splitlines()) <= 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "␛[31mred"),
        ("a\r\nb", "a\nb"),
        ("safe\rover", "safeover"),
        ("\x9b2J", "<U+009B>2J"),
        ("\u202eevil", "<U+202E>evil"),
        ("a\u2028b", "a\nb"),
        ("👩\u200d🔬 नमस्ते", "👩\u200d🔬 नमस्ते"),
    ],
)
def test_invisible_characters_become_visible(text: str, shown: str) -> None:
    assert make_visible(text) == shown
