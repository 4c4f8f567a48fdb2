"""No call runs that was not meant: ends of values, cut answers, thoughts, quotations and schemas."""

import json
from typing import Any

import pytest

from callboard_formats import CallPiece, StreamParser, TextPiece, parse

TOOL: dict[str, Any] = {
    "name": "store",
    "parameters": {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "count": {"type": ["integer", "null"]},
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "more": {"type": ["string", "object", "boolean", "null"]},
            "flags": {"type": "array", "items": {"type": "boolean"}},
        },
    },
}
NOW = {"name": "now", "parameters": {"type": "object", "properties": {}}}


def ran(text: str, **options: Any) -> list[Any]:
    return [call.arguments for call in parse(text, [TOOL, NOW], **options).tool_calls if call.error is None]


def tagged(key: str, value: str) -> str:
    return f"<function=store><parameter={key}>{value}</parameter></function>"


@pytest.mark.parametrize(
    ("key", "value", "meant"),
    [
        ("text", "null", "null"),
        ("text", "\nline\n", "line"),
        ("text", "line\n", "line\n"),
        ("text", "\n\nline\n\n", "\nline\n"),
        ("count", "null", None),
        ("either", "5", 5),
        ("either", "05", "05"),
        ("more", '{"a": [1]}', {"a": [1]}),
        ("more", "{a}", "{a}"),
        ("more", "true", True),
        ("more", '"5"', '"5"'),
        ("flags", "[true, false]", [True, False]),
    ],
)
def test_a_value_between_tags_has_the_type_of_the_schema(key: str, value: str, meant: Any) -> None:
    assert ran(tagged(key, value)) == [{key: meant}]


@pytest.mark.parametrize(
    "text",
    [
        '[mail(from="ä (in=1)", in=\'it\', From="x")]',
        '<|python_tag|>mail.call(from="ä (in=1)", in="it", From="x")<|eom_id|>',
    ],
)
def test_a_parameter_in_python_may_have_the_name_of_a_keyword(text: str) -> None:
    mail = {"name": "mail", "parameters": {"type": "object", "properties": {"from": {}, "in": {}, "From": {}}}}
    [call] = parse(text, [mail]).tool_calls
    assert call.arguments == {"from": "ä (in=1)", "in": "it", "From": "x"}


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    ("text", "name", "codes"),
    [
        ('<｜DSML｜invoke name="now"/>', "deepseek_v4", [None]),
        ('<｜DSML｜tool_calls>\n<｜DSML｜invoke name="now" />\n<｜DSML｜invoke name="now"/>\n</｜DSML｜tool_calls>',
         "deepseek_v4", [None, None]),
        ('<｜DSML｜invoke name="now"/><｜DSML｜parameter name="a" string="true">b</｜DSML｜parameter></｜DSML｜invoke>',
         "deepseek_v4", ["invalid_args"]),
        ("<tool_call>now</arg_value></tool_call>", "glm", [None]),
        ("<tool_call>now a</arg_key><arg_value>b</arg_value></tool_call>", "glm", ["invalid_args"]),
        ("<tool_call>nowa</arg_key><arg_value>b</arg_value></tool_call>", "glm", ["unknown_tool"]),
    ],
)  # fmt: skip
def test_a_call_with_a_missing_or_stray_tag_is_read_if_it_has_no_arguments(
    text: str, name: str, codes: list[str | None], step: int
) -> None:
    parser, content = streamed(text, step, formats=[name])
    assert ([call.error_code for call in parser.calls], content) == (codes, "")


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (" to=functions.nowcommentary json{}", "", 1),
        ("I look.\n\nto=functions.now {}\nto=functions.nowjson {}<|call|>", "I look.", 2),
        ("I write to=functions.now {}", None, 0),
        ("to=functions.now {} asks for the time. Shall I?", None, 0),
        ("For example:\n\nto=functions.now {}", None, 0),
    ],
)
def test_a_recipient_of_harmony_without_tokens_is_a_call_only_alone(text: str, content: str | None, calls: int) -> None:
    assert shown(text, formats=["harmony"]) == (text if content is None else content, calls)


def test_names_in_the_attributes_of_kimi_k3_are_unescaped() -> None:
    tool = {"name": "q&a", "parameters": {"type": "object", "properties": {'a&"b': {"type": "string"}}}}
    call = '<|open|>call tool="q&amp;a" index="0"<|sep|>'
    argument = '<|open|>argument key="a&amp;&quot;b" type="string"<|sep|>&amp;<|close|>argument<|sep|>'
    text = f"<|open|>tools<|sep|>{call}{argument}<|close|>call<|sep|><|close|>tools<|sep|>"
    [parsed] = parse(text, [tool]).tool_calls
    assert (parsed.name, parsed.arguments) == ("q&a", {'a&"b': "&amp;"})


@pytest.mark.parametrize("value", ["[NaN]", "[1e999]", '["\\ud800"]'])
def test_a_list_with_values_that_are_no_json_is_refused(value: str) -> None:
    untyped = {"name": "keep", "parameters": {"type": "object", "properties": {"flags": {"type": "array"}}}}
    [call] = parse(f"<function=keep><parameter=flags>{value}</parameter></function>", [untyped]).tool_calls
    assert (call.arguments, call.error_code) == (None, "invalid_args")


@pytest.mark.parametrize(
    "text",
    [
        "<function=store><parameter=text>a</parameter><parameter=text>b</parameter></function>",
        '<tool_call>{"name": "store", "arguments": {"text": "a", "text": "b"}}</tool_call>',
        '<tool_call>{"name": "store", "arguments": {"text": "a"}, "parameters": {"text": "b"}}</tool_call>',
        '[store(text="a", text="b")]',
    ],
)
def test_a_parameter_that_is_given_twice_is_an_error(text: str) -> None:
    assert ran(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "<|tool_call_begin|>functions.store:0<|tool_call_argument_begin|>storms<|tool_call_end|>",
        "<function=store>storms</function>",
        "<|channel|>commentary to=functions.store<|message|>storms<|call|>",
    ],
)
def test_bare_text_is_no_argument(text: str) -> None:
    assert ran(text) == []


CALL = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'


def test_a_call_before_a_lone_closer_is_part_of_the_thought() -> None:
    assert ran(f"I could:\n{CALL}\nbut no.</think>It is noon.") == []
    assert ran(f"I could:\n{CALL}\nbut no.</think>Now:\n{CALL}") == [{}]


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (f"<think>I look.</think>Now:\n{CALL}\n</think>\nIt is noon.", "Now:", 1),
        (f"Now:\n{CALL}\n</think>\n<|im_end|>", "Now:", 1),
        (f"I could:\n{CALL}\n</think>\nIt is noon.", "I could:\n\nIt is noon.", 0),
    ],
)
def test_a_stray_closer_does_not_cancel_a_call(text: str, content: str, calls: int) -> None:
    assert shown(text) == (content, calls)


def test_a_call_before_a_lone_closer_at_a_cut_is_part_of_the_thought() -> None:
    parser = StreamParser([NOW])
    parser.feed(f"I could:\n{CALL}\n</think>")
    parser.finish(cut=True)
    assert parser.calls == ()


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (f"<think>I could write {CALL}", 0),
        (f"<think>I look.\n{CALL}\n", 0),
        (f"<think>I look.\n{CALL}\n<tool_response>Noon, and", 1),
    ],
)
def test_a_call_in_a_thought_that_was_cut_off_does_not_count(text: str, calls: int) -> None:
    parser = StreamParser([NOW])
    parser.feed(text)
    parser.finish(cut=True)
    assert len(parser.calls) == calls


def test_a_call_at_the_end_of_an_unclosed_thought_counts() -> None:
    assert ran(f"<think>I look.\n{CALL}") == [{}]
    assert ran(f"<think>I could write {CALL} and so on") == []


@pytest.mark.parametrize(("opening", "closing"), ["``", "“”"])
def test_quoted_text_is_unchanged_up_to_its_closing_mark(opening: str, closing: str) -> None:
    call = tagged("text", "x")
    text = f"Write {opening}<tool_call>{call}{call}</tool_call>{closing} for it."
    assert ran(text) == []
    assert parse(text, [TOOL]).content == text


RUN = {
    "name": "run",
    "parameters": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
}


def ran_in_react(text: str) -> list[Any]:
    calls = parse(f"Thought: I run it.\nAction: run\nAction Input: {text}", [RUN], ["react"]).tool_calls
    return [call.arguments for call in calls if call.error is None]


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\n\nI will wait.",
        'print("a\nAction: run\nAction Input: /x")',
    ],
)
def test_bare_input_with_an_unclear_end_does_not_run(text: str) -> None:
    assert ran_in_react(text) == []


@pytest.mark.parametrize("text", ["feed the dogs' food", 'cut a 5" pipe'])
def test_a_mark_right_behind_a_word_opens_no_quotation(text: str) -> None:
    assert ran_in_react(f"{text}\nAction: run\nAction Input: {text}") == [{"code": text}] * 2


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("ls -la\n</tool>\n<tool: function>\nrun ls\n</tool>", [{"code": "ls -la"}, {"code": "ls"}]),
        ('echo "</tool>" > a.xml', []),
        ('echo "</tool>" > a\n<tool: function>\nrun ls\n</tool>', [{"code": "ls"}]),
    ],
)
def test_words_of_cwm_end_only_before_the_next_call_or_the_end_of_the_turn(text: str, calls: list[Any]) -> None:
    text = f"<tool: function>\nrun {text}"
    for step in (1, len(text)):
        parser = StreamParser([RUN], ["cwm"])
        for at in range(0, len(text), step):
            parser.feed(text[at : at + step])
        parser.finish()
        assert [call.arguments for call in parser.calls if call.error is None] == calls


def test_words_of_cwm_do_not_run_if_the_answer_was_cut_off_behind_their_end() -> None:
    parser = StreamParser([RUN], ["cwm"])
    parser.feed('<tool: function>\nrun echo "</tool>')
    parser.finish(cut=True)
    assert [call.error_code for call in parser.calls] == ["invalid_args"]


WRITE = {
    "name": "write",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "text": {"type": "string"}},
        "required": ["path", "text"],
    },
}


def written(path: str, text: str) -> list[Any]:
    call = f'<tool_call>\n{{"name": "write", "arguments": {{"path": {path}, "text": {text}}}}}\n</tool_call>'
    return [call.arguments for call in parse(call, [WRITE]).tool_calls if call.error is None]


@pytest.mark.parametrize(
    ("path", "text", "meant"),
    [
        (r'"C:\Users\me"', r'"x\n"', ("C:\\Users\\me", "x\n")),
        (r'"C:\apps\video"', r'"\alpha \d \x41 \0"', ("C:\\apps\\video", "\\alpha \\d \\x41 \\0")),
        (r'"\d"', r'"\ud83d\ude00"', ("\\d", "😀")),
    ],
)
def test_repair_of_backslashes_changes_no_other_character(path: str, text: str, meant: tuple[str, str]) -> None:
    assert written(path, text) == [{"path": meant[0], "text": meant[1]}]


@pytest.mark.parametrize(
    "text",
    [
        '"say "x" now"', '"{"a": "b"}"', '"x" + "y"', "", "`x`", '""quoted""', "'it's'", "x", '"k": "v"', r'"\ud83d"',
        "{'a': 1, 'a': 2}", r'"a\\": {}}]"',
    ],
)  # fmt: skip
def test_an_incomplete_value_does_not_run(text: str) -> None:
    assert written('"a"', text) == []


def test_half_of_a_string_does_not_run() -> None:
    text = r'{"name": "store", "arguments": {"text": "run[{\"name\": \"now\", \"arguments": {}}]"}}'
    assert ran(f"<tool_call>\n{text}\n</tool_call>") == []


LIST = {"name": "list", "parameters": {"type": "object", "properties": {"folder": {"type": "string"}}}}
LIST_ALL = {**LIST, "name": "list_all"}


@pytest.mark.parametrize("text", ['[TOOL_CALLS]list_all[ARGS]{"folder": "a"}', "Action: list_all"])
def test_an_incomplete_name_does_not_run(text: str) -> None:
    for end in range(1, len(text)):
        calls = parse(text[:end], [LIST, LIST_ALL]).tool_calls
        assert all(call.error for call in calls), text[:end]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "run", "arguments": "print(1)"}</tool_call>',
        '<tool_call>{"name": "run", "arguments": null}</tool_call>',
        '<|START_ACTION|>[{"tool_name": "run", "parameters": "print(1)"}]<|END_ACTION|>',
    ],
)
def test_a_string_in_the_place_of_an_object_is_no_argument(text: str) -> None:
    assert [call.error_code for call in parse(text, [RUN]).tool_calls] == ["invalid_args"]


def streamed(text: str, step: int, **options: Any) -> tuple[StreamParser, str]:
    parser = StreamParser([TOOL, NOW], **options)
    pieces = [one for at in range(0, len(text), step) for one in parser.feed(text[at : at + step])]
    content = "".join(one.text for one in [*pieces, *parser.finish()] if isinstance(one, TextPiece))
    return parser, content


def shown(text: str, **options: Any) -> tuple[str, int]:
    """Return the text and the number of calls; they are the same however the text is cut."""
    [found] = {
        (content, sum(call.error is None for call in parser.calls))
        for parser, content in (streamed(text, step, **options) for step in (1, 2, 3, 5, 1000))
    }
    return found


@pytest.mark.parametrize(
    "text",
    [
        'Write `<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>`.',
        f"It answers ``Sure ` so! {CALL}``.",
        f"A call of `now` is:```\n{CALL}\n```\n\nThat is all.",
        f'The turn is <CODE class="xml">so: {CALL}</CODE> in the log.',
        f"It was\n<pre>\nfirst\n\n{CALL}\n</pre>\nThat is all.",
        f"It was {'so ' * 400}<kbd>{CALL}</kbd>.",
        f"To call it one writes {CALL} and waits.",
        'One writes <tool_call>{"name": "now", "arguments": {]}</tool_call> and so on.',
        f"The syntax is: {CALL}, which asks for the time. Shall I?",
        f"语法是：{CALL}，它会查询时间。",
        f"For example:\n\n{CALL}\n{CALL}\n\nThat asks twice.",
    ],
)
def test_a_quoted_call_is_unchanged_text(text: str) -> None:
    assert shown(text) == (text, 0)


@pytest.mark.parametrize(
    ("words", "is_example"),
    [
        ("A call looks for example like this:\n\n", True),
        ("**For instance:**\n", True),
        ("例如：\n", True),
        ("Here is a simple example of a call:\n", True),
        ("It is called e.g. like this:\n", True),
        ("I don't have real-time data, so I'll use the tool:\n\n", False),
        ("I'll search for examples:\n\n", False),
        ("I look at the time, for example of an hour.\n\n", False),
        ("I don't use my memory for that, I look:\n", False),
        ("I look for the following examples:\n", False),
        ("", False),
    ],
)
def test_an_unmarked_call_that_is_introduced_as_an_example_is_text(words: str, is_example: bool) -> None:
    example = '```json\n{"name": "now", "arguments": {}}\n```'
    content, calls = shown(words + example)
    assert calls == (0 if is_example else 1)
    assert not is_example or content == words + example


@pytest.mark.parametrize(
    "text",
    [
        f"It answers “Sure! {CALL}”.",
        f"1. ```\n   {CALL}\n   ```\n2. Done.",
        f"- ```xml\n  {CALL}\n  ```\n\nThat is all.",
        f"> {CALL}\n\nThat is what it wrote.",
    ],
)
def test_a_call_in_quotation_marks_in_a_block_quotation_or_in_the_code_of_a_list_does_not_run(text: str) -> None:
    assert shown(text)[1] == 0


@pytest.mark.parametrize(
    "text",
    [
        f"Use the ` key. {CALL}\n\nNot `.",
        f"Use the ` key.\n{CALL} and `.",
        f"Use `` and `b`. {CALL}",
        f"He said “so”. {CALL}",
        f"1. ```\n   x\n   ```\n\n{CALL}",
        f"The code: ```python\nx\n```\n\n{CALL}",
        f"Three of them make a fence: ``` and nothing else.\n\n{CALL}",
        f"Use <pre> for that. {CALL}",
        f"A <code> begins code. {CALL}\n\nIts end is </code>.",
        f"I will look now {CALL}\n\nThat is it.",
        f"I look for example now:\n\n{CALL}\n",
        f"I will look {CALL} Now I wait.",
    ],
)
def test_a_call_behind_a_block_quotation_or_code_of_a_list_counts(text: str) -> None:
    assert shown(text)[1] == 1


@pytest.mark.parametrize("thinking", [None, True])
def test_a_quoted_end_of_thinking_ends_no_thought(thinking: bool | None) -> None:
    opener = "" if thinking else "<think>\n"
    assert shown(f"{opener}It says `</think>` there.\n</think>\n\n4", thinking=thinking) == ("4", 0)
    text = f"{opener}It writes `</think>` and then\n{CALL}\nbut not here.\n</think>\n4"
    assert shown(text, thinking=thinking) == ("4", 0)


M3 = "]<]minimax[>["


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    "text",
    [
        f'{M3}<tool_call>{M3}<invoke name="store">{M3}<text>a{M3}</text> x{M3}</text>{M3}</invoke>{M3}</tool_call>',
        f'{M3}<tool_call>{M3}<invoke name="store">' + f"{M3}<text>" * 500,
        f'{M3}<tool_call>{M3}<invoke name="store">{f"{M3}<a>" * 500}{f"{M3}</a>" * 500}{M3}</invoke>{M3}</tool_call>',
        f'{M3}<tool_call>{M3}<invoke name="store">{f"{M3}<text>a{M3}</text>" * 2}{M3}</invoke>{M3}</tool_call>',
        '<|tool_call>call:store{text:<|"|>a<|"|>} x<|"|>}<tool_call|>',
        "<start_function_call>call:store{text:<escape>a<escape>} x<escape>}<end_function_call>",
        f"[store(text=0x{'1' * 300})]",
        f'[store(text="x", count=0x{"1" * 9000})]',
        '{"name": "store", "arguments": {"text": 3.10}}',
        tagged("flags", '[{"a": 1, "a": 2}]'),
    ],
)
def test_an_ambiguous_value_does_not_run(text: str, step: int) -> None:
    parser = StreamParser([{**TOOL, "parameters": {**TOOL["parameters"], "additionalProperties": True}}])
    for at in range(0, len(text), step):
        parser.feed(text[at : at + step])
    parser.finish()
    assert [call.error_code for call in parser.calls] == ["invalid_args"]


@pytest.mark.parametrize("text", ["Write\nAction: run\nAction Input: x\nto run.", "\nAction: run\nAction Input: x"])
@pytest.mark.parametrize("before", ["Thought: a\n", ""])
def test_a_call_within_the_final_answer_of_react_does_not_run(before: str, text: str) -> None:
    assert parse(f"{before}Final Answer: {text}", [RUN], ["react"]).tool_calls == ()


@pytest.mark.parametrize("token", ["</s>", "[e~["])
def test_a_call_that_ends_a_thought_counts_before_the_end_of_the_turn(token: str) -> None:
    assert shown(f"<think>\nI should.\n\n{CALL}{token}\n") == ("", 1)


@pytest.mark.parametrize("junk", ["}", "<|close|>json<x>"])
def test_text_behind_the_json_of_kimi_k3_is_refused(junk: str) -> None:
    text = (
        '<|open|>tools<|sep|><|open|>call tool="store" index="1"<|sep|><|open|>json<|sep|>'
        f'{{"text": "x"}}{junk}<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>'
    )
    assert shown(text) == ("", 0)


def test_a_requested_json_schema_is_text() -> None:
    text = '{"name": "store", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}'
    assert shown(text) == (text, 0)
    assert parse(text, [TOOL]).tool_calls == ()


def test_the_input_none_means_no_arguments() -> None:
    [call] = parse("Action: now\nAction Input: None.", [NOW], ["react"]).tool_calls
    assert call.arguments == {}
    assert ran_in_react("None") == []


BROKEN = [
    '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="store">\nnow the text\n<｜DSML｜parameter name="text" string="true">a'
    "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="store">\n<｜DSML｜parameter name="text" string="">a'
    "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    "<tool_call>store\n<arg_key>text</ag_key>\n<arg_value>a</arg_value>\n</tool_call>",
    '<tool_call>"name": "store", "arguments": {"text": "a"}}</tool_call>',
    '<minimax:tool_call>\n<invoke store>\n<parameter name="text">a</parameter>\n</invoke>\n</minimax:tool_call>',
    "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=store]<]minimax[>[<text>a]<]minimax[>[</text>"
    "]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.store:0<|tool_call_arg_begin|>{"text": "a"}'
    "<|tool_call_end|><|tool_calls_section_end|>",
]


@pytest.mark.parametrize("thinking", [None, True])
@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize("text", BROKEN)
def test_a_malformed_call_is_refused_and_not_shown(text: str, step: int, thinking: bool | None) -> None:
    parser, content = streamed(f"I will.\n\n{text}", step, thinking=thinking)
    [call] = parser.calls
    assert (call.name, call.arguments, content) == ("store", None, "" if thinking else "I will.")


@pytest.mark.parametrize("step", [1, 1000])
def test_calls_around_a_malformed_call_in_a_section_are_read(step: int) -> None:
    good = '<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n'
    bad = BROKEN[0].removeprefix("<｜DSML｜tool_calls>\n").removesuffix("</｜DSML｜tool_calls>")
    for calls, meant in (((good, bad, good), [{}, None, {}]), ((bad, good), [None, {}])):
        parser, content = streamed(f"<｜DSML｜tool_calls>\n{''.join(calls)}</｜DSML｜tool_calls>", step)
        assert ([call.arguments for call in parser.calls], content) == (meant, "")


@pytest.mark.parametrize(
    "text",
    [
        "<function=store> opens a call.",
        "It goes into a <｜DSML｜tool_calls> section.\nNothing else does.",
        "Of <tool_call> store.\n",
    ],
)
def test_text_that_names_a_tool_behind_a_marker_is_no_call(text: str) -> None:
    assert parse(text, [TOOL, NOW]).tool_calls == ()


@pytest.mark.parametrize(
    "text",
    [
        '{"messages": [{"role": "assistant", "content": "Sure. <function=now></function>"}]}',
        'It said "Let me look: <function=now></function>" and then "so <function=now></function>".',
    ],
)
def test_a_call_in_a_string_of_json_or_code_is_unchanged_text(text: str) -> None:
    assert shown(text) == (text, 0)


@pytest.mark.parametrize("text", [f'A 5" pipe. {CALL}', f'She said "so. {CALL}', f'"a" "b {CALL}'])
def test_an_unclosed_straight_quotation_mark_hides_no_call(text: str) -> None:
    assert shown(text)[1] == 1


QWEN = "<tool_call>\n<function=store>\n<parameter=text>\n{}\n</parameter>\n</function>\n</tool_call>"
EXAMPLE = "Ex:\n<tool_call>\n<function=now>\n<parameter=x>\nls\n</parameter>\n</function>\n</tool_call>\nThat was it."


@pytest.mark.parametrize("value", [EXAMPLE, "It ends with </parameter>\n</function>\n</tool_call> always.\nMore"])
def test_a_value_that_is_cut_off_does_not_end_at_a_closer_within_it(value: str) -> None:
    whole = QWEN.format(value)
    assert ran(whole) == [{"text": value}]
    # Directly behind a complete second end, that end looks like the end of the call.
    closers_end = whole.index("</tool_call>") + len("</tool_call>")
    cuts = [*range(whole.index(value) + 1, len(whole) - len("</tool_call>"))]
    seen = [at for at in cuts if ran(whole[:at]) not in ([], [{"text": value}]) and "</par" in whole[closers_end:at]]
    assert seen == []
    assert value is not EXAMPLE or not any(ran(whole[:at]) for at in cuts if at < whole.rindex("</parameter>"))


@pytest.mark.parametrize(
    "text",
    [
        '<|channel|>final<|message|>{"name": "now", "arguments": {}}',
        '<|channel|>final<|message|>```json\n{"name": "now", "arguments": {}}\n```',
        '<|channel|>commentary<|message|>{"name": "now", "arguments": {}}',
    ],
)
def test_in_harmony_only_a_message_to_a_tool_is_a_call(text: str) -> None:
    assert shown(text)[1] == 0
    assert shown(f"{text}<|return|>")[1] == 0


@pytest.mark.parametrize("text", ["storms\nObs", '"storms', "```python"])
def test_bare_text_that_is_cut_off_does_not_run(text: str) -> None:
    assert ran_in_react(text) == []


@pytest.mark.parametrize("thought", ['{"name": "</think>"}', '```\ns = "</think>"\n```'])
def test_a_quoted_end_of_thinking_behind_the_beginning_of_a_call_ends_no_thought(thought: str) -> None:
    assert shown(f"<think>{thought}</think>Ok.") == ("Ok.", 0)


MAIL = {
    "name": "mail",
    "parameters": {
        "type": "object",
        "properties": {"to": {"type": "array", "items": {"type": "string"}}, "text": {"type": "string"}},
        "required": ["text"],
    },
}


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('<|tool_call_start|>[mail(text="a\nb", to=["c"])]<|tool_call_end|>', {"text": "a\nb", "to": ["c"]}),
        (
            '<function name="mail"><param name="to">[\'a\', \'b\']</param><param name="text">c</param></function>',
            {"to": ["a", "b"], "text": "c"},
        ),
        ('<|channel|>commentary to=functions.mail<|message|>{"text": "a"}<|ca', {"text": "a"}),
    ],
)
def test_clear_calls_with_small_errors_are_read(text: str, arguments: dict[str, Any], step: int) -> None:
    parser = StreamParser([MAIL])
    pieces = [one for at in range(0, len(text), step) for one in parser.feed(text[at : at + step])] + parser.finish()
    assert [call.arguments for call in parser.calls] == [arguments]
    assert not [one for one in pieces if isinstance(one, TextPiece)]


@pytest.mark.parametrize("text", ['mail(text="a" if b else "\n")', 'mail(text="say "a\nb" now")', 'mail(text="a\nb)'])
def test_a_string_of_several_lines_with_an_unclear_end_does_not_run(text: str) -> None:
    [call] = parse(f"<|tool_call_start|>[{text}]<|tool_call_end|>", [MAIL]).tool_calls
    assert call.arguments is None


@pytest.mark.parametrize("step", [1, 1000])
def test_the_pieces_of_a_value_between_tags_have_its_type(step: int) -> None:
    parser = StreamParser([TOOL])
    text = "<function=store><parameter=count>5</parameter><parameter=text>5</parameter></function>"
    pieces = [one for at in range(0, len(text), step) for one in parser.feed(text[at : at + step])] + parser.finish()
    written = "".join(one.text for one in pieces if isinstance(one, CallPiece))
    assert json.loads(written) == {"count": 5, "text": "5"}


def test_a_fence_within_a_fenced_input_of_react_does_not_end_it() -> None:
    code = 'print("""\n```\n""")'
    assert ran_in_react(f"\n```python\n{code}\n```\nObservation: ") == [{"code": code}]
    # Without a word behind it, it is unclear which of the two ends it.
    assert ran_in_react(f"\n```python\n{code}\n```") == []


@pytest.mark.parametrize(
    "text",
    [
        f"s = 'Sure! {CALL}'\n",
        f"def f():\n    return f'It\\'s {CALL}' + x",
        "s = 'Sure! [TOOL_CALLS]now[ARGS]{}'",
    ],
)
def test_a_call_in_a_string_of_a_program_is_text(text: str) -> None:
    assert shown(text) == (text, 0)


@pytest.mark.parametrize(
    "text",
    [
        f"s = 'Sure!' {CALL}",
        f"s = 'It never ends {CALL}\n'",
        f"Those are the sailors' ('so they say) {CALL}",
    ],
)
def test_a_call_counts_behind_a_programs_string_and_in_an_unclosed_one(text: str) -> None:
    assert shown(text)[1] == 1


@pytest.mark.parametrize("line", ["\tx = 1\n", "    x = 1\n\n"])
def test_a_call_in_a_long_block_of_indented_code_does_not_run(line: str) -> None:
    for lines in (1, 25, 100):
        text = f"Look:\n\n{line * lines}    {CALL}\n"
        assert shown(text) == (text, 0), lines


def test_a_marker_inside_a_line_of_indented_code_begins_no_call() -> None:
    section = "<|tool_calls_section_begin|><|tool_call_begin|>now<|tool_call_argument_begin|>{}<|tool_call_end|>"
    text = f"Look:\n\n    {section}\n"
    assert shown(text) == (text, 0)


@pytest.mark.parametrize("before", ["word " * 60 + "\n", "word " * 60 + "\n    - a\n", "  x = 1\n" * 50])
def test_indentation_without_code_hides_no_call(before: str) -> None:
    assert shown(f"Look:\n{before}    {CALL}")[1] == 1


def test_openais_schema_of_a_tool_is_text() -> None:
    text = '[{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]'
    assert shown(text) == (text, 0)
    assert parse(text, [NOW]).tool_calls == ()


def test_an_empty_unknown_value_between_tags_is_refused() -> None:
    assert ran("<function=store><parameter=text>a</parameter><parameter=TEXT></parameter></function>") == []


def test_arguments_that_are_nested_too_deeply_for_json_do_not_end_a_thought() -> None:
    nested = "[" * 3000 + "]" * 3000
    call = '<tool_call>\n{"name": "store", "arguments": {"text": "</think>", "flags": %s}}\n</tool_call>'
    assert ran(f"<think>\n{call % nested}") == []


@pytest.mark.parametrize(("key", "is_right"), [("text", True), ("flags", False)])
def test_a_value_between_tags_that_is_nested_too_deeply_for_json_is_text(key: str, is_right: bool) -> None:
    nested = "[" * 3000 + "]" * 3000
    text = (
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="store">\n'
        f'<｜DSML｜parameter name="{key}" string="false">{nested}</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
    )
    [call] = parse(text, [TOOL]).tool_calls
    assert call.arguments == ({key: nested} if is_right else None)


@pytest.mark.parametrize("text", ["[" * 300 + "]" * 300, '[{"a": ' * 300])
def test_brackets_that_are_nested_too_deeply_for_a_call_are_text(text: str) -> None:
    assert shown(text) == (text, 0)


def test_a_number_of_more_digits_than_python_writes_is_refused() -> None:
    [call] = parse(f"[store(0x{'f' * 5000})]", [TOOL]).tool_calls
    assert (call.arguments, call.error_code) == (None, "invalid_args")


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    "result", ["<tool_response>\nnoon\n</tool_response>", "<|im_end|>\n<tool_response>\nnoon", "<|tool_response>"]
)
def test_a_result_that_the_model_imagines_ends_a_thought_that_ends_in_a_call(result: str, step: int) -> None:
    parser, content = streamed(f"<think>\nI look.\n{CALL}\n{result}", step)
    assert [(call.name, call.error) for call in parser.calls] == [("now", None)]
    assert content == ""


_GLM = ("<arg_key>{}</arg_key>\n<arg_value>", "</arg_value>\n", "<tool_call>write\n{}</tool_call>")
_QWEN = ("<parameter={}>\n", "\n</parameter>\n", "<tool_call>\n<function=write>\n{}</function>\n</tool_call>")
_DSML = (
    '<｜DSML｜parameter name="{}" string="true">',
    "</｜DSML｜parameter>\n",
    '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="write">\n{}</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
)


@pytest.mark.parametrize("tags", [_GLM, _QWEN, _DSML], ids=["glm", "qwen3_coder", "deepseek_v4"])
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a{next}", "b{close}"),
        ("{open}a{close}", "b{close}"),
        ("a{tag}{close}", "b{close}"),
        ("a</path>\n", "b{close}"),
        ("a</paramete>\n", "b{close}"),
    ],
    ids=["no closer", "opened twice", "closed twice", "closed by its name", "closed with a typo"],
)
def test_a_value_with_a_tag_at_its_edge_does_not_run(tags: tuple[str, str, str], path: str, text: str) -> None:
    opening, closing, call = tags
    words = {"open": opening.format("path").rsplit("\n", 1)[-1] or "<parameter=path>", "close": closing, "next": ""}
    words["tag"] = closing.strip()
    arguments = opening.format("path") + path.format(**words) + opening.format("text") + text.format(**words)
    calls = parse(call.format(arguments), [WRITE]).tool_calls
    assert [call.name for call in calls] == ["write"]
    assert [call.arguments for call in calls if call.error is None] in ([], [{"path": "a", "text": "b"}])


# ------------------------------------------------------------------------------------ answers that were cut off


ZONED_NOW = {"name": "now", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}
OBJECT = '{"name": "now", "arguments": {}}'
TAGGED = f"<tool_call>{OBJECT}</tool_call>"


def read_cut(text: str, formats: list[str] | None, step: int, *, cut: bool) -> tuple[str, list[str | None]]:
    """Return the content of an answer and the error code of each call."""
    parser = StreamParser([ZONED_NOW], formats)
    shown = [one for at in range(0, len(text), step) for one in parser.feed(text[at : at + step])]
    shown += parser.finish(cut=cut)
    content = "".join(one.text for one in shown if isinstance(one, TextPiece))
    return content, [call.error_code for call in parser.calls]


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    ("text", "formats"),
    [
        (OBJECT, None),
        (f"Look:\n[{OBJECT}]\n", None),
        (f"{OBJECT}\n<|im_e", None),
        (f"<tools>\n{OBJECT}\n</tools>", None),
        (f"```json\n{OBJECT}\n```", ["react"]),
        (f"```json\n{OBJECT}", ["react"]),
        (f"```xml\n{TAGGED}\n```\n", ["xml"]),
        ("```\nAction: now\nAction Input: {}\n```", ["react"]),
        ("Action: now\nAction Input: {}", None),
        ('I call commentary to=functions.now json{"zone": "a"}', None),
        (f"One writes {TAGGED}", None),
        (f"He wrote “so: {TAGGED}", None),
        (f"See <pre>\n{TAGGED}\n", None),
    ],
)
def test_an_end_only_call_is_text_if_the_answer_was_cut_off(text: str, formats: list[str] | None, step: int) -> None:
    assert read_cut(text, formats, step, cut=True) == (text, [])
    assert read_cut(text, formats, step, cut=False)[1] == [None]


@pytest.mark.parametrize("step", [1, 1000])
@pytest.mark.parametrize(
    ("text", "formats"),
    [
        ('{"name": "now", "arguments": {"zo', None),
        (f'[{OBJECT}, {{"name": "now", "argum', None),
        ("Action: now\nAction Input: the whole wor", ["react"]),
        ("Action: now\nAction Input:\n```\nx = 1\n```", ["react"]),
    ],
)
def test_a_call_that_was_cut_off_is_refused_with_the_calls_of_its_block(
    text: str, formats: list[str] | None, step: int
) -> None:
    content, errors = read_cut(text, formats, step, cut=True)
    assert content == ""
    assert errors
    assert set(errors) == {"invalid_args"}


@pytest.mark.parametrize(
    ("text", "formats"),
    [
        (f"I call it.\n{TAGGED}", None),
        ("Action: now\nAction Input: {}\nObservation: no", None),
        ("Action: now\nAction Input: {}", ["react"]),
        (f"```json\n{OBJECT}\n```\nObservation: no", ["react"]),
    ],
)
def test_a_complete_call_runs_although_the_answer_was_cut_off(text: str, formats: list[str] | None) -> None:
    assert read_cut(text, formats, 1000, cut=True)[1] == [None]


@pytest.mark.parametrize("step", [1, 1000])
def test_an_assigned_call_counts_beside_python_that_was_cut_off(step: int) -> None:
    assert read_cut("```tool_code\ntime = now()\nrows = now(zone='storms in th", ["gemma"], step, cut=True) == (
        "",
        [None, "invalid_args"],
    )
