"""The words of the question whether a call may run."""

from typing import Any

import pytest

from callboard.calls.approval import list_arguments


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({}, "No arguments."),
        ({"play": "Hamlet", "seats": 2, "late": True, "box": None}, "play: Hamlet\nseats: 2\nlate: true\nbox: null"),
        ({"note": ""}, 'note: ""'),
        ({"text": "Dear Ada,\nHello \\n.\n", "to": "ada"}, "text:\n    Dear Ada,\n    Hello \\n.\n    \nto: ada"),
        (
            {"mails": [{"to": "ada", "text": "Dear Ada,\nHello."}, 3], "options": {}, "tags": ["a\n- b"]},
            "mails:\n    - to: ada\n      text:\n          Dear Ada,\n          Hello.\n    - 3\n"
            "options:\n    {}\ntags:\n    - a\n      - b",
        ),
        ({"a\nseats: 2": "x\nseats: 3"}, '"a\\nseats: 2":\n    x\n    seats: 3'),
    ],
)
def test_arguments_are_labelled_lines_and_no_value_looks_like_a_label(arguments: dict[str, Any], shown: str) -> None:
    assert list_arguments(arguments) == shown
