"""What the templates may not do, whoever changes them."""

import re
from pathlib import Path

import pytest

import callboard._inspect
from callboard._inspect.rendering import ENVIRONMENT, label, visible

TEMPLATES = sorted((Path(callboard._inspect.__file__).parent / "templates").glob("*.html"))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_no_template_turns_escaping_off_or_puts_markup_into_an_attribute(template: Path) -> None:
    text = template.read_text()
    assert not re.search(r"\|\s*safe|autoescape|<script(?![^>]*src=)|<style|\sstyle=|\son\w+=|javascript:", text)
    # `visible` and `excerpt` make markup of what cannot be seen; an attribute takes `label`.
    assert not re.search(r'[\w-]="[^"]*\{\{[^}]*\|\s*(?:excerpt|visible)', text)
    ENVIRONMENT.get_template(template.name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00b", 'a<span class="unseen" title="control character">U+0000</span>b'),
        ("\u202eexe.txt", '<span class="unseen" title="right-to-left override">U+202E</span>exe.txt'),
        ("a\r\nb\tc", "a\r\nb\tc"),
        ("a\rb", 'a<span class="unseen" title="control character">U+000D</span>b'),
        # What any text can be written in behind one letter, and what looks like a space.
        ("a\U000e0141", 'a<span class="unseen" title="variation selector-82">U+E0141</span>'),
        ("a\uffa0", 'a<span class="unseen" title="halfwidth hangul filler">U+FFA0</span>'),
        ("❤\ufe0f", "❤\ufe0f"),
        ("👩\u200d👩", "👩\u200d👩"),
    ],
)
def test_invisible_characters_are_marked(text: str, shown: str) -> None:
    assert str(visible(text)) == shown


def test_a_label_is_one_line_without_markup() -> None:
    assert label("a\n\u202eb<c>", 80) == "a U+202Eb<c>"
    assert len(label("x" * 1_000_000, 80)) == 80
