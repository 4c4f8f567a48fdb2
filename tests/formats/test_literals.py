"""Literals are found as by a plain search, and the first answer in a syntax compiles very little."""

import json
import subprocess
import sys
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from callboard_formats.literals import Literals

# Few characters, so that literals are prefixes of others. The Kelvin sign and `İ` change in lower case.
texts = st.text(st.sampled_from("aAkK<|｜İ\n"), max_size=9)
literals = st.sets(st.text(st.sampled_from("ak<|｜İ\n"), min_size=1, max_size=6), max_size=7)


def lower(text: str) -> str:
    return "".join(char.lower() if char.isascii() else char for char in text)


def longest(known: Iterable[str], text: str) -> str:
    return max((one for one in known if lower(text).startswith(one)), key=len, default="")


def grows(known: Iterable[str], text: str) -> bool:
    return text != "" and any(one.startswith(lower(text)) and len(one) > len(text) for one in known)


@given(literals, texts, st.integers(0, 9), st.booleans())
def test_literals_are_found_as_a_search_at_every_place_finds_them(
    known: set[str], text: str, start: int, final: bool
) -> None:
    sought = Literals(known)
    places = [place for place in range(start, len(text)) if longest(known, text[place:]) or grows(known, text[place:])]
    expected = (len(text), "")
    for place in places:
        if not final and grows(known, text[place:]):
            expected = (place, "")
            break
        if found := longest(known, text[place:]):
            expected = (place, found)
            break
    assert sought.find(text, start, final=final) == expected
    assert sought.search(text, start) == next(
        ((place, longest(known, text[place:])) for place in places if longest(known, text[place:])), None
    )
    written = sought.match(text, start)
    assert lower(written) == longest(known, text[start:])
    assert text.startswith(written, start) or written == ""
    assert sought.may_grow(text, start) == grows(known, text[start:])


MAX_CALLS = 200_000
"""The most calls of functions that compile the expressions of a syntax: some 40 ms. Two million stopped all streams."""

COUNTING = """
import json, sys
from callboard_formats import StreamParser
from callboard_formats.formats import list_formats

ANSWER = "<think>I see.</think>An answer.\\n\\n```python\\nx = 1\\n```\\n"

def read(name):
    parser = StreamParser([], None if name is None else [name])
    parser.feed(ANSWER)
    parser.finish()

def count_calls(name):
    calls = 0
    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"
    sys.setprofile(count)
    read(name)
    sys.setprofile(None)
    return calls

print(json.dumps({str(name): count_calls(name) - count_calls(name) for name in (*list_formats(), None)}))
"""


def test_the_first_answer_of_a_process_costs_little_more_than_the_second() -> None:
    counted = json.loads(subprocess.check_output([sys.executable, "-c", COUNTING], text=True))
    assert len(counted) > 30
    assert all(calls > 0 for calls in counted.values()), "nothing was compiled: this process has read answers before"
    assert {name: calls for name, calls in counted.items() if calls > MAX_CALLS} == {}
