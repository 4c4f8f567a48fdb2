"""The syntaxes one by one: which syntax reads a block, where the block ends, and which text is kept as written."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import regex

from callboard_formats import parse
from callboard_formats.formats import SYNTAXES, syntaxes_of
from callboard_formats.json_text import Value, build_call, decode_string, read_first_value, read_value
from callboard_formats.python import SOURCE_CHARS, Brackets, notation_to_json, parse_calls, read_brackets
from callboard_formats.row import Row
from callboard_formats.syntax import BlockContext, Syntax, WrittenCall
from callboard_formats.table import ROWS
from callboard_formats.text_buffer import TextBuffer, read_now
from tests.formats.corpus import TOOLS

SCHEMAS = [tool.schema() for tool in TOOLS]
KNOWN = {tool.name: tool.parameters for tool in TOOLS}
NAMES = tuple(dict.fromkeys(one.name for one in SYNTAXES))

every_syntax = pytest.mark.parametrize("syntax", SYNTAXES, ids=lambda one: getattr(one, "title", type(one).__name__))


def block(
    syntax: Syntax, text: str, *, line_start: bool = True, final: bool = True
) -> tuple[int, Sequence[WrittenCall | str] | None] | None:
    """Return the end and the content of the block at the beginning of `text`; None if more text is needed."""
    buffer = TextBuffer(text, final=final)
    try:
        next(syntax.read(buffer, BlockContext(line_start, False, KNOWN)))
    except StopIteration as done:
        return buffer.position, done.value
    return None


@every_syntax
def test_a_syntax_has_openers_and_at_most_four_stops(syntax: Syntax) -> None:
    assert syntax.openers
    assert all(syntax.openers)
    assert len(syntax.stops) <= 4
    assert all(tag.opener and tag.closer for tag in syntax.reasoning)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_a_row_says_where_it_is_specified_and_compiles(row: Row) -> None:
    assert row.source
    assert all(link.startswith("https://") for link in row.source)
    assert row.patterns.head.pattern
    assert all(regex.compile(model) for model in row.models)


@every_syntax
def test_an_opener_alone_is_decided_at_the_end_of_the_text(syntax: Syntax) -> None:
    for opener in syntax.openers:
        read = block(syntax, opener)
        assert read is not None
        assert 0 <= read[0] <= len(opener)


@pytest.mark.parametrize("name", NAMES)
def test_a_call_behind_a_quotation_mark_is_quoted(name: str) -> None:
    for opener in (one for syntax in syntaxes_of([name]) for one in syntax.openers):
        for mark in ("`", '"', "'", "“", "„"):
            assert parse(f'a {mark}{opener}now {{"name": "now"}}', SCHEMAS).tool_calls == (), (opener, mark)


@pytest.mark.parametrize(
    ("body", "reader"),
    [
        ('\n{"name": "now"}\n</tool_call>', "hermes"),
        ("\n<function=now>\n</function>\n</tool_call>", "qwen3_coder"),
        ("now\n</tool_call>", "glm"),
    ],
)
def test_the_body_of_a_tool_call_tag_decides_its_syntax(body: str, reader: str) -> None:
    text = f"<tool_call>{body}"
    readers = set()
    for row in (one for one in ROWS if one.name in ("hermes", "qwen3_coder", "glm")):
        read = block(row, text)
        assert read is not None
        if read[1] is not None and read[0] == len(text):
            readers.add(row.name)
    assert readers == {reader}


@pytest.mark.parametrize("text", ["<tool_call>", "<tool_call>\n", "<tool_call> \r\n"])
def test_an_open_tag_waits_for_what_follows(text: str) -> None:
    assert all(block(row, text, final=False) is None for row in ROWS if row.name in ("hermes", "qwen3_coder", "glm"))


@pytest.mark.parametrize("text", ['{"name": "now", "parameters": {}}', "[now()]"])
def test_an_unmarked_call_must_fill_its_line(text: str) -> None:
    assert [call.name for call in parse(text, SCHEMAS).tool_calls] == ["now"]
    for prose in (f"so {text}", f"{text} is it", f"{text} is it\nand more"):
        parsed = parse(prose, SCHEMAS)
        assert (parsed.content, parsed.tool_calls) == (prose, ())


def test_arguments_are_kept_exactly_as_written() -> None:
    arguments = '{ "query" :"a\\u00e9",  "limit":1.0 }'
    texts = (
        f'<tool_call>{{"name": "search", "arguments": {arguments}}}</tool_call>',
        f"[TOOL_CALLS]search[ARGS]{arguments}",
        f"<|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|>",
        f"<|channel|>commentary to=functions.search<|message|>{arguments}<|call|>",
        f"<｜tool▁call▁begin｜>search<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>",
        f'{{"name": "search", "parameters": {arguments}}}',
    )
    for text in texts:
        owners = [one for one in SYNTAXES if text.lower().startswith(tuple(opener.lower() for opener in one.openers))]
        reads = [read for one in owners if (read := block(one, text)) and read[1]]
        assert {read[0] for read in reads} == {len(text)}
        calls = [call for read in reads for call in read[1] or () if isinstance(call, WrittenCall)]
        assert {(call.name, call.arguments) for call in calls} == {("search", arguments)}


@pytest.mark.parametrize("name", NAMES)
def test_a_text_without_markers_is_the_same_behind_any_syntax(name: str) -> None:
    text = 'Storms {x} [1] <b>"é"</b> | a | b |\n\n\tcode\n> quote: `now()` 🎭\n'
    assert parse(text, SCHEMAS, [name]).content == text


def test_a_value_ends_with_its_bracket_and_not_in_a_string() -> None:
    text = '{"a": "}\\"}", "b": [1, {"c": 2}]}'
    value = read_first_value(f"{text} y")
    assert (value.text, value.whole) == (text, True)
    assert value.members == {"a": '"}\\"}"', "b": '[1, {"c": 2}]'}


def test_an_incomplete_value_keeps_its_text() -> None:
    value = read_first_value('{"name": "search", "arguments": {"query": "sto')
    assert not value.whole
    assert value.members == {"name": '"search"', "arguments": '{"query": "sto'}


def test_a_value_nested_too_deep_is_not_read() -> None:
    assert value_to("[" * 9, depth=8).too_deep
    assert not value_to("[" * 8 + "]" * 8, depth=8).too_deep


def value_to(text: str, *, depth: int) -> Value:
    return read_now(read_value(TextBuffer(text, final=True), depth_limit=depth))


def test_a_repeated_key_is_detected() -> None:
    assert read_first_value('{"a": 1, "a": 2}').doubled
    assert not read_first_value('{"a": 1, "b": {"a": 2}}').doubled


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ('{"name": "f", "arguments": {"a": 1}}', WrittenCall("f", '{"a": 1}')),
        ('{"function": "f", "args": {"a": 1}}', WrittenCall("f", '{"a": 1}')),
        ('{"type": "function", "function": {"name": "f", "arguments": "{}"}}', WrittenCall("f", '"{}"')),
        ('{"name": "f"}', WrittenCall("f", "")),
        ('{"name": "f", "a": 1}', WrittenCall("f", '{"name": "f", "a": 1}')),
        ('{"a": 1}', WrittenCall("", '{"a": 1}')),
        ('{"name": "f", "arguments": {"a": 1', WrittenCall("f", '{"a": 1', truncated=True)),
        ('{"name": "f", "arguments": {"a": 1}', WrittenCall("f", '{"a": 1}')),
    ],
)
def test_the_members_of_an_object_say_what_it_calls(text: str, call: WrittenCall) -> None:
    found = build_call(read_first_value(text))
    assert (found.name, found.arguments, found.truncated) == (call.name, call.arguments, call.truncated)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ('{"a": "x"}</t> more', "</t> more"),
        ('{"a": "</t>"}</t> more', "</t> more"),
        ('{"a": "x</t> and "more"', '</t> and "more"'),
        ('{"a": {"b": 1}</t> more', "</t> more"),
        ('{"a": 1} more', " more"),
    ],
)
def test_json_ends_at_its_closing_tag_even_if_brackets_are_missing(text: str, rest: str) -> None:
    buffer = TextBuffer(text, final=True)
    read_now(read_value(buffer, regex.compile("</t>")))
    assert text[buffer.position :] == rest


@pytest.mark.parametrize(("raw", "text"), [('"a\\n"', "a\n"), ("'a'", "a"), ("a", "a"), ('"a', '"a'), ('"\\x"', "\\x")])
def test_a_string_is_decoded_or_kept_as_raw_text(raw: str, text: str) -> None:
    assert decode_string(raw) == text


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        ("f(a=1, b='x', c=None, d=True, e=-2.5)", {"a": 1, "b": "x", "c": None, "d": True, "e": -2.5}),
        ("f(a=[1, (2, 3)], b={'k': {'n': []}})", {"a": [1, [2, 3]], "b": {"k": {"n": []}}}),
        ("f(a=true, b=null)", {"a": True, "b": None}),
        ('f(a="""two\nlines""")', {"a": "two\nlines"}),
        (r"f(a='\d')", {"a": r"\d"}),
        ("f(a='a' 'b')", {"a": "ab"}),
        ("print(f())", {}),
        ("x = tools.f()", {}),
    ],
)
def test_literals_of_python_become_json(source: str, arguments: dict[str, object]) -> None:
    calls = parse_calls(source)
    assert calls is not None
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("f", arguments)]


@pytest.mark.parametrize(
    "source",
    [
        "f(a=b)", "f(a=g())", "f(*a)", "f(**a)", "f(1, 2)", "f(a=1 + 1)", "f(a=f'{b}')", "f(a={1: 2})", "f(a=b'x')",
        "f(a=1e999)", "f(a=...)", "f(a=[x for x in y])", f"f(a={'9' * 5000})",
    ],
)  # fmt: skip
def test_other_expressions_stay_source_that_is_no_json(source: str) -> None:
    calls = parse_calls(source)
    for call in calls or ():
        assert call.arguments == "{" + source[2:-1] + "}"
    parsed = parse(f"[{source.replace('f(', 'search(', 1)}]", SCHEMAS)
    assert all(call.error for call in parsed.tool_calls)


@pytest.mark.parametrize(
    "source",
    ["", "f", "for x in y: f()", "def f(): pass", "f() + g()", "f()()", "import f", "f(a=1, a=", "(" * 300,
     "-" * 9000 + "1", "f(a=" + "-" * 9000 + "1)", "f(a='\x00')", "a" + ".b" * 9000 + "()", "f(a=1)\n" * SOURCE_CHARS],
)  # fmt: skip
def test_source_with_other_statements_contains_no_calls(source: str) -> None:
    assert not parse_calls(source)


def test_brackets_in_strings_do_not_count() -> None:
    text = "[f(a='])', b=\"[\", c='''\n]''')] more"
    assert brackets(text) == (Brackets.CLOSED, len(text) - len(" more"))
    assert brackets("[f(")[0] is Brackets.OPEN
    assert brackets("[[[", 2)[0] is Brackets.TOO_DEEP


def brackets(text: str, limit: int = 9) -> tuple[Brackets, int]:
    buffer = TextBuffer(text, final=True)
    return read_now(read_brackets(buffer, limit)), buffer.position


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", {}),
        ("{a:<escape>b<escape>}", {"a": "b"}),
        ('{a:<|"|>b, {c}: "d"<|"|>,e:-1.5,f:true,g:null}', {"a": 'b, {c}: "d"', "e": -1.5, "f": True, "g": None}),
        ("{a:[1,<escape>x<escape>,[]],b:{<escape>c d<escape>:{}}}", {"a": [1, "x", []], "b": {"c d": {}}}),
        ("{a:[1,<escape>x<escape>,[]],b:{<escape>c<escape>:{}}}", {"a": [1, "x", []], "b": {"c": {}}}),
        ('{a:"b\\"c"}', {"a": 'b"c'}),
        ("{a:two words,b:3}", {"a": "two words", "b": 3}),
    ],
)
def test_the_notation_of_gemma_becomes_json(text: str, value: object) -> None:
    written = notation_to_json(text)
    assert (json.loads(written) if written else None) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "{",
        "{a}",
        "{a:}",
        "{a:1",
        "{a:<escape>b}",
        "{a:1}}",
        "[1]",
        "{a:" * 200 + "}" * 200,
        "{a:1e999}",
    ],
)
def test_text_in_another_notation_is_not_converted(text: str) -> None:
    assert notation_to_json(text) is None


def test_the_page_of_models_has_every_family_and_whether_a_prompt_of_its_models_opens_the_thought() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/models.md").read_text()
    told: dict[str, set[str]] = {}
    for family, opens in re.findall(r"^\| `(\w+)` \|[^|]*\|[^|]*\| ([^|]*) \|", page, re.MULTILINE):
        told.setdefault(family, set()).add(opens)
    opening = {row.name for row in ROWS if row.prompt_opens}
    assert told.keys() == {row.name for row in ROWS if row.models} | {"functionary", "harmony", "minimax_m3"}
    assert {family for family, opens in told.items() if opens - {"no", "where asked to think"}} == opening
