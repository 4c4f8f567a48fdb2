"""An answer that was cut off: nobody saw its end, so nothing runs that counts only there."""

import pytest

from callboard_formats import StreamParser, TextPiece

NOW = {"name": "now", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}
OBJECT = '{"name": "now", "arguments": {}}'
TAGGED = f"<tool_call>{OBJECT}</tool_call>"


def read(text: str, formats: list[str] | None, step: int, *, cut: bool) -> tuple[str, list[str | None]]:
    """The content of an answer, and the code of each call's error."""
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
def test_a_call_that_counts_only_at_the_end_is_text_if_the_answer_was_cut_off(
    text: str, formats: list[str] | None, step: int
) -> None:
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
def test_a_call_that_the_answer_was_cut_off_in_is_refused_with_all_that_count_with_it(
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
def test_a_call_whose_end_was_seen_runs_although_the_answer_was_cut_off(text: str, formats: list[str] | None) -> None:
    assert read(text, formats, 1000, cut=True)[1] == [None]
