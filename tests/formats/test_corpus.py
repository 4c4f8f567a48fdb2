"""Every output of the corpus is read as its file says, whole and in pieces."""

from collections.abc import Iterator

import pytest

from callboard_formats.formats import list_formats
from callboard_formats.text_buffer import LET_GO_CHARS, LOOK_BACK_CHARS
from tests.formats.corpus import (
    ASKED_FOR,
    FOLDER,
    FORMATS,
    Entry,
    Meant,
    corpus,
    cut,
    entries,
    meaning,
)

PIECE_CHARS = (1, 3)
"""Sizes of pieces that find most of the faults that a cut at every place finds, in a fraction of the time."""

every_file = pytest.mark.parametrize("format_name", FORMATS)


def test_each_format_has_a_file_and_no_output_or_name_is_there_twice() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(FORMATS) >= set(list_formats())
    read = [(entry.output, entry.opened, entry.format in ASKED_FOR and entry.format) for entry in corpus()]
    names = [(entry.format, entry.name) for entry in corpus()]
    assert len(set(read)) == len(read) == len(set(names))


@every_file
def test_outputs_are_read_as_their_file_says_whole_and_in_small_pieces(format_name: str) -> None:
    check(
        (entry, f"in pieces of {size}", meaning(entry, in_pieces_of(size, entry.output)), entry.meant)
        for entry in entries(format_name)
        for size in (*PIECE_CHARS, len(entry.output))
    )


@pytest.mark.thorough
@every_file
def test_outputs_are_read_the_same_cut_at_every_place(format_name: str) -> None:
    # No cut is inside of a character, because the bytes are decoded before.
    check(
        (entry, f"cut behind {entry.output[:place]!r}", meaning(entry, cut(entry.output, place)), entry.meant)
        for entry in entries(format_name)
        for place in range(1, len(entry.output))
    )


@every_file
def test_outputs_are_read_the_same_after_text_before_them_was_dropped(format_name: str) -> None:
    def readings() -> Iterator[tuple[Entry, str, Meant, Meant]]:
        for number, entry in enumerate(entries(format_name)):
            # The parser drops text in the middle of the output, or near its end.
            kept = (len(entry.output) // 2, 12)[number % 2]
            before = "word word\n" * ((LET_GO_CHARS + LOOK_BACK_CHARS - kept) // len("word word\n"))
            whole = meaning(entry, [before + entry.output])
            yield entry, f"dropped at {kept}", meaning(entry, [before, *entry.output]), whole

    check(readings())


def in_pieces_of(size: int, text: str) -> list[str]:
    """Return `text` in pieces of `size` characters."""
    return cut(text, *range(size, len(text), size))


def check(readings: Iterator[tuple[Entry, str, Meant, Meant]]) -> None:
    """Fail with every output that was read differently: its name, how it was read, the reading and the expectation.

    Only the first difference of each output is reported.
    """
    wrong: dict[str, str] = {}
    for entry, how, read, expected in readings:
        if read != expected:
            wrong.setdefault(entry.name, f"{entry.name}, {how}:\n  read     {read}\n  expected {expected}")
    if wrong:
        pytest.fail(f"{len(wrong)} outputs are read wrongly\n" + "\n".join(wrong.values()), pytrace=False)
