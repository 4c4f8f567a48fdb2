"""Every output of the corpus means what it says there, whole and in pieces."""

import pytest

from callboard_formats import parse
from callboard_formats.formats import names
from callboard_formats.tape import LET_GO_CHARS, LOOK_BACK_CHARS
from tests.formats.corpus import ASKED_FOR, FOLDER, FORMATS, TOOLS, Entry, corpus, cut, entries, meaning, meant, table

every_entry = pytest.mark.parametrize("entry", corpus(), ids=lambda entry: f"{entry.format}: {entry.name}")

SCHEMAS = [tool.schema() for tool in TOOLS]


@pytest.mark.parametrize("format_name", FORMATS)
def test_each_format_has_twenty_outputs_and_ten_that_call_nothing(format_name: str) -> None:
    every = entries(format_name)
    assert len(every) >= 20
    assert sum(not entry.calls_something for entry in every) >= 10
    assert len({entry.name for entry in every}) == len(every)


def test_each_file_is_in_the_corpus_and_each_format_has_one() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(FORMATS) >= set(names())


def test_no_output_is_read_in_the_same_way_twice() -> None:
    read = [(entry.output, entry.opened, entry.format in ASKED_FOR and entry.format) for entry in corpus()]
    assert len(set(read)) == len(read)


@every_entry
def test_an_output_means_what_the_corpus_says(entry: Entry) -> None:
    assert meaning(entry, [entry.output]) == entry.meant


@every_entry
def test_an_output_means_the_same_cut_at_any_place(entry: Entry) -> None:
    # Pieces are text: bytes are decoded below, so a cut within a character cannot come up here.
    for place in range(1, len(entry.output)):
        assert meaning(entry, cut(entry.output, place)) == entry.meant, f"cut behind {entry.output[:place]!r}"


@every_entry
def test_an_output_means_the_same_character_by_character(entry: Entry) -> None:
    assert meaning(entry, entry.output) == entry.meant


@every_entry
def test_an_output_means_the_same_in_pieces_of_a_few_characters(entry: Entry) -> None:
    for size in (2, 3, 5, 8):
        places = range(size, len(entry.output), size)
        assert meaning(entry, cut(entry.output, *places)) == entry.meant, f"in pieces of {size}"


@every_entry
def test_an_output_means_the_same_where_text_before_it_is_let_go(entry: Entry) -> None:
    # In its middle, and near its end, the reader lets go of what it has read.
    for kept in (len(entry.output) // 2, 12):
        before = "word word\n" * ((LET_GO_CHARS + LOOK_BACK_CHARS - kept) // len("word word\n"))
        assert meaning(entry, [before, *entry.output]) == meaning(entry, [before + entry.output])


@every_entry
def test_parse_says_the_same(entry: Entry) -> None:
    parsed = parse(
        entry.output, SCHEMAS, [entry.format] if entry.format in ASKED_FOR else None, thinking=entry.opened or None
    )
    assert (parsed.content, parsed.reasoning) == (entry.meant.content, entry.meant.reasoning)
    assert tuple(map(meant, parsed.tool_calls)) == entry.meant.calls


def test_the_table_has_a_line_for_each_format() -> None:
    lines = table().splitlines()
    assert len(lines) == 2 + len(FORMATS)
    assert all(line.startswith("| ") and line.count("|") == lines[0].count("|") for line in lines)
