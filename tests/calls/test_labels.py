import pytest

from callboard.calls.call import label_call


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        ({}, "look"),
        ("", "look"),
        ({"city": "Oslo", "unit": "C"}, "look · Oslo"),
        ('{"city": "Oslo"}', "look · Oslo"),
        ({"days": 3}, "look · 3"),
        ({"deep": True, "where": {"city": "Oslo"}, "names": ["Ann"], "city": "Oslo"}, "look · Oslo"),
        ({"text": "two\nlines", "path": "notes.md"}, "look · notes.md"),
        ({"blank": " ", "turned": "a\u202eb", "city": "Oslo"}, "look · Oslo"),
        (
            {"prompt": "a long sentence " * 10},
            "look · a long sentence a long sentence a long sentence a long sent…",
        ),
        ('{"city": "Os', "look"),
        ("[1, 2]", "look"),
        ("[" * 100_000, "look"),
    ],
)
def test_label_has_the_first_argument_that_is_one_line_of_text(arguments: str | dict[str, object], label: str) -> None:
    assert label_call("look", arguments) == label
