"""Functionary's messages in answers that begin without the first `>>>`, which is in the prompt."""

from typing import Any

import pytest

from callboard_formats import ReasoningPiece, StreamParser, TextPiece
from tests.formats.corpus import TOOLS, cut, meant

SCHEMAS = [tool.schema() for tool in TOOLS]
SEARCH: dict[str, Any] = {"query": "storms"}
CALL = '{"query": "storms"}'


def read(
    pieces: list[str], formats: list[str] | None, model: str = ""
) -> tuple[str, str, tuple[tuple[str, dict[str, Any] | str], ...]]:
    parsing = StreamParser(SCHEMAS, formats, model=model)
    shown = [one for piece in pieces for one in parsing.feed(piece)] + parsing.finish()
    return (
        "".join(one.text for one in shown if isinstance(one, TextPiece)),
        "".join(one.text for one in shown if isinstance(one, ReasoningPiece)),
        tuple(meant(call) for call in parsing.calls),
    )


MEANINGS = {
    f"search\n{CALL}": ("", (("search", SEARCH),)),
    f"search\n{CALL} \n   ": ("", (("search", SEARCH),)),
    f">>>search\n{CALL}": ("", (("search", SEARCH),)),
    f"all\nLet me look.\nNow.>>>search\n{CALL}>>>now\n{{}}<|eot_id|>": (
        "Let me look.\nNow.",
        (("search", SEARCH), ("now", {})),
    ),
    "all\nIt is noon.": ("It is noon.", ()),
    "all\nIn Python:\n>>> now()\n12": ("In Python:\n>>> now()\n12", ()),
    f"all\n```\n>>>search\n{CALL}\n```\nNothing was run.": (f"```\n>>>search\n{CALL}\n```\nNothing was run.", ()),
    f"all\n```\nx = 1\n```>>>search\n{CALL}": ("```\nx = 1\n```", (("search", SEARCH),)),
    "It is noon.": ("It is noon.", ()),
    "Well,\nit is noon.": ("Well,\nit is noon.", ()),
    "all": ("", ()),
    "now\n": ("", (("now", "invalid_args"),)),
    "no": ("", (("no", "unknown_tool"),)),
    'search\n{"query": "sto': ("", (("search", "invalid_args"),)),
    f"search\n{CALL} and more": ("", (("search", "invalid_args"),)),
    "search\nstorms<|eot_id|>": ("", (("search", "invalid_args"),)),
    f"book_flight\n{CALL}": ("", (("book_flight", "unknown_tool"),)),
    f"all\nOne.>>>book_flight\n{CALL}>>>now\n{{}}": ("One.", (("book_flight", "unknown_tool"), ("now", {}))),
    "all\nA line with >>>value\nbegins nothing.": ("A line with >>>value\nbegins nothing.", ()),
}


@pytest.mark.parametrize("text", MEANINGS)
def test_an_answer_continues_behind_the_separator_of_its_prompt(text: str) -> None:
    content, calls = MEANINGS[text]
    for pieces in ([text], list(text), *(cut(text, place) for place in range(1, len(text)))):
        assert read(pieces, ["functionary"]) == (content, "", calls), pieces


def test_the_models_name_decides_about_the_separator_if_every_syntax_is_read() -> None:
    text = f"all\nLet me look.>>>search\n{CALL}"
    assert read([text], None, "meetkai/functionary-small-v3.2") == ("Let me look.", "", (("search", SEARCH),))
    assert read([f"search\n{CALL}"], None, "meetkai/functionary-small-v3.1") == (f"search\n{CALL}", "", ())


def test_code_for_python_is_no_json() -> None:
    python = {"name": "python", "parameters": {"type": "object", "properties": {"code": {"type": "string"}}}}
    code = 'print("""\n>>> now\n""")'
    for text, ran in ((f"python\n{code}<|eot_id|>", {"code": code}), (f"python\n{code}", None)):
        for pieces in ([text], list(text)):
            parsing = StreamParser([python], ["functionary"])
            for piece in pieces:
                parsing.feed(piece)
            parsing.finish()
            assert [call.arguments for call in parsing.calls] == [ran]
