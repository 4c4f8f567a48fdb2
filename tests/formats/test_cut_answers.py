"""Calls that count only at the end of an answer do not run if the answer was cut off."""

import pytest

from callboard_formats import StreamParser, TextPiece, parse

NOW = {"name": "now", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}
OBJECT = '{"name": "now", "arguments": {}}'
TAGGED = f"<tool_call>{OBJECT}</tool_call>"


def read(text: str, formats: list[str] | None, step: int, *, cut: bool) -> tuple[str, list[str | None]]:
    """Return the content of an answer and the error code of each call."""
    parser = StreamParser([NOW], formats)
    shown = [one for at in range(0, len(text), step) for one in parser.feed(text[at : at + step])]
    shown += parser.finish(cut=cut)
    content = "".join(one.text for one in shown if isinstance(one, TextPiece))
    return content, [call.error_code for call in parser.calls]


@pytest.mark.parametrize("step", [1, 7, 1000])
@pytest.mark.parametrize(
    ("text", "formats"),
    [
        (OBJECT, None),
        (f"Look:\n[{OBJECT}]\n", None),
        (f'{{"tool_calls": [{OBJECT}]}}', ["hermes"]),
        ("[now()]", None),
        (f"{OBJECT}\n<|im_e", None),
        ("call:now{}", None),
        (f"<tools>\n{OBJECT}\n</tools>", None),
        (f"```json\n{OBJECT}\n```", None),
        (f"```json\n{OBJECT}\n```", ["react"]),
        (f"```json\n{OBJECT}", ["react"]),
        (f"```json\n{OBJECT}\n```", ["hermes"]),
        (f"```xml\n{TAGGED}\n```\n", ["xml"]),
        ("```\nAction: now\nAction Input: {}\n```", ["react"]),
        ("```\nAction: now\nAction Input: {}\n", ["react"]),
        ("Action: now\nAction Input: {}", None),
        ("I write Action: now Action Input: {}", ["react"]),
        ('I call commentary to=functions.now json{"zone": "a"}', None),
        (f"One writes {TAGGED}", None),
        (f"He wrote “so: {TAGGED}", None),
        (f'He wrote "so: {TAGGED}', None),
        (f"He wrote `so: {TAGGED}", ["hermes"]),
        (f"See <pre>\n{TAGGED}\n", None),
    ],
)
def test_an_end_only_call_is_text_if_the_answer_was_cut_off(text: str, formats: list[str] | None, step: int) -> None:
    assert read(text, formats, step, cut=True) == (text, [])
    assert read(text, formats, step, cut=False)[1] == [None]


@pytest.mark.parametrize("step", [1, 7, 1000])
@pytest.mark.parametrize(
    ("text", "formats"),
    [
        ('{"name": "now", "arguments": {"zo', None),
        (f'[{OBJECT}, {{"name": "now", "argum', None),
        (f'<tools>{OBJECT}</tools>\n<tools>{{"name": "now", "ar', None),
        ("Action: now\nAction Input: the whole wor", ["react"]),
        ("Action: now\nAction Input:\n```\nx = 1\n```", ["react"]),
    ],
)
def test_a_call_that_was_cut_off_is_refused_with_the_calls_of_its_block(
    text: str, formats: list[str] | None, step: int
) -> None:
    content, errors = read(text, formats, step, cut=True)
    assert content == ""
    assert errors
    assert set(errors) == {"invalid_args"}


@pytest.mark.parametrize(
    ("text", "formats"),
    [
        (f"I call it.\n{TAGGED}", None),
        (f"One writes {TAGGED}<|im_end|>", None),
        (f"{OBJECT}<|eot_id|>", None),
        ("Action: now\nAction Input: {}\nObservation: no", None),
        ("Action: now\nAction Input: {}", ["react"]),
        ("Action: now\nAction Input: all\nObservation: no", ["react"]),
        (f"```json\n{OBJECT}\n```\nObservation: no", ["react"]),
    ],
)
def test_a_complete_call_runs_although_the_answer_was_cut_off(text: str, formats: list[str] | None) -> None:
    assert read(text, formats, 1000, cut=True)[1] == [None]


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_an_assigned_call_counts_beside_python_that_was_cut_off(step: int) -> None:
    assert read("```tool_code\ntime = now()\nrows = now(zone='storms in th", ["gemma"], step, cut=True) == (
        "",
        [None, "invalid_args"],
    )


ARGUMENTS = {"zone": "a"}
_QWEN = "<function=now>\n<parameter=zone>\na\n</parameter>\n</function>\n"
_DSML = (
    '<｜DSML｜invoke name="now">\n<｜DSML｜parameter name="zone" string="true">a</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n"
)
CALLS = {
    "qwen3_coder": ("<tool_call>\n", _QWEN, "</tool_call>"),
    "qwen3_coder, a section each": ("", f"<tool_call>\n{_QWEN}</tool_call>\n", ""),
    "qwen3_coder, without a section": ("", _QWEN, ""),
    "seed_oss": (
        "<seed:tool_call>\n", "<function=now>\n<parameter=zone>a</parameter>\n</function>\n", "</seed:tool_call>"
    ),
    "deepseek_v3_2": ("<｜DSML｜function_calls>\n", _DSML, "</｜DSML｜function_calls>"),
    "deepseek_v4": ("<｜DSML｜tool_calls>\n", _DSML, "</｜DSML｜tool_calls>"),
    "step3": (
        "<｜tool▁calls▁begin｜>\n",
        '<｜tool▁call▁begin｜>function<｜tool▁sep｜><steptml:invoke name="now"><steptml:parameter name="zone">a'
        "</steptml:parameter></steptml:invoke><｜tool▁call▁end｜>\n",
        "<｜tool▁calls▁end｜>",
    ),
    "minimax_m2": (
        "<minimax:tool_call>\n",
        '<invoke name="now">\n<parameter name="zone">a</parameter>\n</invoke>\n',
        "</minimax:tool_call>",
    ),
    "glm": ("", "<tool_call>now\n<arg_key>zone</arg_key>\n<arg_value>a</arg_value>\n</tool_call>\n", ""),
    "hunyuan_3": (
        "<tool_calls>\n",
        "<tool_call>now<tool_sep>\n<arg_key>zone</arg_key>\n<arg_value>a</arg_value>\n</tool_call>\n",
        "</tool_calls>",
    ),
    "kimi_k3": (
        "<|open|>tools<|sep|>",
        '<|open|>call tool="now" index="0"<|sep|><|open|>argument key="zone" type="string"<|sep|>a'
        "<|close|>argument<|sep|><|close|>call<|sep|>",
        "<|close|>tools<|sep|>",
    ),
    "k2_horizon": (
        "<ifm|tool_calls>",
        "<ifm|tool_call>now<ifm|arg_key>zone</ifm|arg_key><ifm|arg_value>a</ifm|arg_value></ifm|tool_call>",
        "</ifm|tool_calls>",
    ),
    "llama4": ("<|python_start|>[", 'now(zone="a"), ', "]<|python_end|>"),
    "llama4, unmarked": ("[", 'now(zone="a"), ', "]"),
    "llama3, a list": ("[", '{"name": "now", "parameters": {"zone": "a"}}, ', "]"),
    "llama3": ("", '{"name": "now", "parameters": {"zone": "a"}}\n', ""),
    "mistral": ("[TOOL_CALLS][", '{"name": "now", "arguments": {"zone": "a"}}, ', "]"),
    "hermes": ("", '<tool_call>\n{"name": "now", "arguments": {"zone": "a"}}\n</tool_call>\n', ""),
    "functionary": ("", '>>>now\n{"zone": "a"}', ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_complete_call_counts_wherever_the_next_one_is_cut_off(name: str) -> None:
    before, call, after = CALLS[name]
    first = (before + call).rstrip(", \n")
    answer = before + call + call.rstrip(", ") + after
    for end in range(len(first) + 1, len(answer) + 1):
        [parsed, *others] = parse(answer[:end], [NOW]).tool_calls
        assert parsed.arguments == ARGUMENTS, answer[:end]
        assert len(others) <= 1, answer[:end]
        assert all(one.error or one.arguments == ARGUMENTS for one in others), answer[:end]
