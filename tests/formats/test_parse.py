"""`parse`, the function for other programs."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest

import callboard_formats
from callboard._formats import Parsed, ParsedCall, ToolFormat, parse
from callboard_formats import StreamParser, TextPiece
from callboard_formats.formats import MAYBE_UNMARKED, RELATED_FORMATS
from callboard_formats.table import ROWS

SEARCH: dict[str, Any] = {
    "name": "search",
    "description": "Searches.",
    "parameters": {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["query"],
    },
}
TOOLS = [{"type": "function", "function": SEARCH}]


def test_text_alone_is_content() -> None:
    assert parse("Hello.\n", TOOLS) == Parsed("Hello.\n", "", ())


def test_reasoning_content_and_calls_are_separated_in_any_format() -> None:
    text = '<think>Hm.</think>Let me see.\n<tool_call>{"name": "search", "arguments": {"query": "a"}}</tool_call>'
    call = ParsedCall("search", {"query": "a"})
    assert parse(text, TOOLS) == Parsed("Let me see.\n", "Hm.", (call,))
    assert parse(text, TOOLS, "rescue") == Parsed("Let me see.", "Hm.", (call,))
    assert parse(text, TOOLS, "native") == Parsed(text, "", ())


def test_repairs_are_reported() -> None:
    [call] = parse(
        "<tool_call>{\"name\": \"google\", \"arguments\": {'Query': 'a', 'limit': '5'}}</tool_call>", TOOLS
    ).tool_calls
    assert (call.name, call.arguments, call.error) == ("search", {"query": "a", "limit": 5}, None)
    assert "google" in call.repairs[0]
    assert len(call.repairs) >= 3


def test_a_broken_call_has_an_error_and_no_arguments() -> None:
    [call] = parse(
        '<tool_call>{"name": "search", "arguments": {"query": 5.5, "page": 1}}</tool_call>', TOOLS
    ).tool_calls
    assert call.arguments is None
    assert "page" in (call.error or "")


def test_tools_may_be_given_without_their_wrapper_and_without_parameters() -> None:
    tools: list[dict[str, Any]] = [SEARCH, {"name": "now"}]
    parsed = parse('Action: now\nAction Input: {}\nAction: search\nAction Input: {"query": "a"}', tools, "react")
    assert [(call.name, call.arguments) for call in parsed.tool_calls] == [("now", {}), ("search", {"query": "a"})]


@pytest.mark.parametrize("properties", [{"query": True}, None])
@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("minimax_m3", 'T<tool_call>T<invoke name="search">T<query>aT</query>T</invoke>T</tool_call>'),
        ("qwen3_coder", "<tool_call><function=search><parameter=query>a</parameter></function></tool_call>"),
    ],
)
def test_a_schema_without_types_of_its_properties_reads_texts(family: str, text: str, properties: object) -> None:
    tools = [{"name": "search", "parameters": {"type": "object", "properties": properties}}]
    [call] = parse(text.replace("T<", "]<]minimax[>[<"), tools, family).tool_calls
    assert call == ParsedCall("search", {"query": "a"})


READ_BY = {
    '<tool_call>{"name": "search", "arguments": {"query": "a"}}</tool_call>': {"auto", "rescue", "xml", "hermes"},
    'Action: search\nAction Input: {"query": "a"}': {"auto", "rescue", "react"},
    'So: <tool_call>{"name": "search", "arguments": {"query": "a"}}</tool_call>': {"rescue", "xml", "hermes"},
}
OF_TOOL_CALL = {one.name for one in ROWS if "<tool_call>" in one.openers}
"""The formats whose calls begin in the same way: what is no call of theirs behind that is refused."""


@pytest.mark.parametrize("text", READ_BY)
@pytest.mark.parametrize("name", get_args(ToolFormat))
def test_a_call_is_read_by_its_format_related_formats_and_rescue_only(name: str, text: str) -> None:
    parsed = parse(text, TOOLS, name)
    if READ_BY[text] & {name, *RELATED_FORMATS.get(name, ())}:
        assert [call.arguments for call in parsed.tool_calls] == [{"query": "a"}]
    elif "<tool_call>" in text and OF_TOOL_CALL & {name, *RELATED_FORMATS.get(name, ())}:
        assert [call.arguments for call in parsed.tool_calls] == [None]
    else:
        assert (parsed.content, parsed.tool_calls) == (text, ())


OF_A_FAMILY = [
    (
        "deepseek_v4",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="search">\n<｜DSML｜parameter name="query" string="true">a'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    ),
    (
        "deepseek",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="search">\n<｜DSML｜parameter name="query" string="true">a'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    ),
    ("minicpm", '<tool_call>\n<function name="search"><param name="query">a</param></function>\n</tool_call>'),
    ("llama3", '<TOOLCALL>[{"name": "search", "arguments": {"query": "a"}}]</TOOLCALL>'),
    (
        "minimax_m2",
        '<invoke name="search">\n<parameter name="query">a</parameter>\n</invoke>\n</minimax:tool_call>',
    ),
]
"""What a family's models write besides, by what its parsers in vLLM read, or NVIDIA's for its Llama Nemotron."""


@pytest.mark.parametrize(("name", "text"), OF_A_FAMILY)
def test_a_family_is_read_with_another_section_or_without_one_and_no_marker_is_left(name: str, text: str) -> None:
    parsed = parse(f"I look.\n\n{text}", TOOLS, name)
    assert (parsed.content, [call.arguments for call in parsed.tool_calls]) == ("I look.", [{"query": "a"}])


@pytest.mark.parametrize(("name", "marker"), [("minicpm", "<|tool_call_end|>"), ("glm", "</tool_call>")])
def test_fragments_of_a_familys_other_syntaxes_are_not_shown(name: str, marker: str) -> None:
    assert parse(f"It is noon.{marker}", TOOLS, name).content == "It is noon."


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ('search(query="a")', "", [{"query": "a"}]),
        ('I look.\nsearch(query="a")\nsearch(query="(b)")\n', "I look.", [{"query": "a"}, {"query": "(b)"}]),
        ('search(query="a")\n\nfinds a.', 'search(query="a")\n\nfinds a.', []),
        ('Write search(query="a")', 'Write search(query="a")', []),
        ('find(query="a")', 'find(query="a")', []),
        ('search(query="a', 'search(query="a', []),
    ],
)
def test_granite_calls_in_bare_lines_of_python_at_the_end(
    text: str, content: str, calls: list[dict[str, str]], step: int
) -> None:
    parser = StreamParser(TOOLS, ["granite"])
    shown = [one for at in range(0, len(text), step) for one in parser.feed(text[at : at + step])]
    shown += parser.finish()
    assert "".join(one.text for one in shown if isinstance(one, TextPiece)) == content
    assert [call.arguments for call in parser.calls] == calls


@pytest.mark.parametrize("name", get_args(ToolFormat))
def test_an_unmarked_call_is_read_only_by_families_that_write_such_calls(name: str) -> None:
    text = '[search(query="a")]'
    parsed = parse(text, TOOLS, name)
    if name in {"auto", "rescue", *MAYBE_UNMARKED}:
        assert [call.arguments for call in parsed.tool_calls] == [{"query": "a"}]
    else:
        assert (parsed.content, parsed.tool_calls) == (text, ())


def test_an_unknown_format_is_refused_and_the_known_are_listed() -> None:
    with pytest.raises(ValueError, match="react, xml"):
        parse("", TOOLS, "morse")


def test_the_examples_of_the_packages_readme_run() -> None:
    readme = (Path(callboard_formats.__file__).parent / "README.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert len(examples) == 3
    exec("\n".join(examples), {})
