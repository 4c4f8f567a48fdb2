"""The tracker of Markdown agrees with CommonMark, and gives the same answers for a text cut anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard_formats.markdown import MarkdownTracker

MARKS = st.sampled_from(
    ["```", "~~~", "`", "``", "word", " ", "\n", "\n\n", "\r\n", "\r", "- ", "> ", "    ", "| ", "|---|", "<code>",
     "</code>", "<pre>", "</pre>", "<!--", "-->", '"', "'", "“", "”", "\\", "(", "="]
)  # fmt: skip
Answers = tuple[bool, bool, bool, bool, bool, bool, tuple[str, ...]]


def answers(tracker: MarkdownTracker) -> Answers:
    return (
        tracker.is_at_line_start(),
        tracker.is_behind_words(),
        tracker.is_literal(),
        tracker.is_in_quoted_line(),
        tracker.is_in_string(),
        tracker.may_begin_call(),
        tracker.open_quotations(),
    )


@given(st.lists(MARKS, max_size=30).map("".join), st.integers(1, 5))
def test_a_text_cut_anywhere_or_given_in_lines_gives_the_same_answers(text: str, size: int) -> None:
    whole, pieces = MarkdownTracker(), MarkdownTracker()
    whole.feed(text)
    for start in range(0, len(text), size):
        pieces.feed(text[start : start + size])
    assert answers(pieces) == answers(whole)
    as_text, as_lines = MarkdownTracker(), MarkdownTracker()
    for line in text.split("\n"):
        as_text.feed(f"{line}\n")
        as_lines.feed_line(line)
        assert answers(as_lines) == answers(as_text)


@pytest.mark.parametrize(("text", "is_literal"), [
    ("```\n", True),
    ("```\ncode\n```\n", False),
    ("```\ncode\n``` x", True),
    ("- > ```\n> ", True),
    ("behind words ```\n~~~\n\n", True),
    ("an open ` tick\n", True),
    ("an open ` tick\n\n", False),
    ("an open `` span\n```` no fence``\n", False),
    ("> ", True),
])  # fmt: skip
def test_code_indented_lines_and_quotations_are_literal(text: str, is_literal: bool) -> None:
    tracker = MarkdownTracker()
    tracker.feed(text)
    assert tracker.is_literal() is is_literal


@pytest.mark.parametrize(("text", "may_begin"), [
    ("Words.\n", True),
    ("> words\r", False),
    ("```\ncode\n    ```\nwords\n", False),
    ("words ```python\ncode\n```\nwords\n", False),
    ("- ```\n  code\n\n  ```\nwords\n", True),
    ("- ```\nwords\n\n", False),
    ("<details>\n\nwords\n", False),
    ("`<details>` words\n", True),
    ("words ```` <details>`\n\n", False),
])  # fmt: skip
def test_a_call_begins_only_where_no_renderer_shows_code_or_a_quotation(text: str, may_begin: bool) -> None:
    tracker = MarkdownTracker()
    tracker.feed(text)
    assert tracker.may_begin_call() is may_begin
