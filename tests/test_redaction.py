"""No text that leaves the server has a secret in any encoding, and ordinary words stay."""

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.redaction import MASK, Redaction, hide_key, secrets_in_url, without_paths

KEY = 'sk-live/47"ä+\\x'
"""Every escape makes something else of it."""


@pytest.mark.parametrize(
    "dressed",
    [
        KEY,
        json.dumps({"key": KEY}),
        json.dumps({"key": KEY}, ensure_ascii=False),
        json.dumps({"arguments": json.dumps({"key": KEY})}),
        repr({"key": KEY}),
        html.escape(KEY),
        quote(KEY),
        quote(KEY, safe=""),
        quote_plus(KEY).lower(),
        f"https://x.example/?a=1&key={quote(KEY, safe='')}&b=2",
        *(base64.b64encode(f"{'u' * before}{KEY}:rest".encode()).decode() for before in range(4)),
        base64.urlsafe_b64encode(f"user:{KEY}".encode()).decode(),
    ],
)
def test_a_secret_is_found_in_every_dress(dressed: str) -> None:
    shown = Redaction([KEY])(f"before {dressed} after")
    assert MASK in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert "sk-live" not in shown
    assert Redaction([KEY])(shown) == shown


@pytest.mark.parametrize("word", ["key", "12345", "secret", "password", "Hunter", "callboard", "1234567", "      x "])
def test_values_that_look_like_words_or_numbers_are_not_replaced(word: str) -> None:
    said = f"The {word} of the house, {word}s."
    assert Redaction([word])(said) == said


def test_secrets_in_texts_keys_and_numbers_are_replaced_and_other_values_are_the_same_objects() -> None:
    redaction = Redaction(["token-of-mine", "1234567890"])
    found = {"a": ["x token-of-mine"], "token-of-mine": (1234567890, True, None, 1.5)}
    assert redaction.value(found) == {"a": [f"x {MASK}"], MASK: (MASK, True, None, 1.5)}
    harmless = {"a": [1, {"b": "token"}]}
    assert redaction.value(harmless) is harmless


def test_a_value_that_is_too_deep_to_be_walked_is_searched_all_the_same() -> None:
    redaction = Redaction(["token-of-mine"])
    deep: list[object] = ["nothing"]
    for _ in range(600):
        deep = [deep]
    assert redaction.value(deep) is deep
    for _ in range(100):
        deep = [deep, "token-of-mine"]
    assert "token-of-mine" not in str(redaction.value(deep))


SHORT = "1ndex9"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"the {SHORT} of it", f"the {MASK} of it"),
        (f"{SHORT}es, re{SHORT} and {SHORT}2", f"{SHORT}es, re{SHORT} and {SHORT}2"),
        (f"key={SHORT}&a=b, x_{SHORT}_y, /{SHORT}/", f"key={MASK}&a=b, x_{MASK}_y, /{MASK}/"),
        (f"a%3A{SHORT} and a\\n{SHORT}", f"a%3A{MASK} and a\\n{MASK}"),
        (base64.b64encode(f"user:{SHORT}".encode()).decode(), f"dXNlcjo{MASK}k="),
    ],
)
def test_a_secret_shorter_than_eight_characters_is_not_found_inside_a_word(said: str, shown: str) -> None:
    assert Redaction([SHORT])(said) == shown


@pytest.mark.parametrize(
    ("key", "said", "shown"),
    [
        ("x", "x is no key: index", "… is no key: index"),
        ("secret", "the secret of secrets", "the … of secrets"),
        ("sk-12345678", "sk-123456789", "…9"),
        ("", "nothing", "nothing"),
    ],
)
def test_a_short_key_is_hidden_only_outside_of_words(key: str, said: str, shown: str) -> None:
    assert hide_key(said, key) == shown


@given(st.data())
def test_a_stream_split_anywhere_has_no_secret_and_all_other_text(data: st.DataObject) -> None:
    secrets = ["abab-ab", "abab-ab-abc", KEY, SHORT]
    parts = st.sampled_from([*secrets, "ab", "a", "abab-", " ", "x", "%3A", "\\n", json.dumps(KEY), "sk-live"])
    text = "".join(data.draw(st.lists(parts, max_size=12)))
    stream = Redaction(secrets).stream()
    shown = ""
    rest = text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        shown = shown + stream.feed(rest[:size])
        rest = rest[size:]
    assert shown + stream.flush() == Redaction(secrets)(text)


def test_text_that_cannot_begin_a_secret_is_not_held_back() -> None:
    stream = Redaction([KEY]).stream()
    assert stream.feed("no s here") == "no s here"
    assert stream.feed(" sk-") == " "
    assert stream.feed("ill") == "sk-ill"


def test_secrets_added_later_and_above_are_replaced_at_once() -> None:
    server = Redaction()
    run = Redaction(above=server)
    assert run("token-of-mine key-of-yours") == "token-of-mine key-of-yours"
    server.add("token-of-mine")
    run.add("key-of-yours")
    assert run("token-of-mine key-of-yours") == f"{MASK} {MASK}"
    assert server("token-of-mine key-of-yours") == f"{MASK} key-of-yours"


def test_passwords_in_addresses_are_secrets_and_a_short_one_is_with_its_name() -> None:
    known = Redaction(
        secrets_in_url("postgresql://cb:p%40ss-word@db/x") + secrets_in_url("https://me:abc@searx/?token=t0k3n-a")
    )
    assert known("p@ss-word and p%40ss-word") == f"{MASK} and {MASK}"
    assert known("abc is no secret, me:abc@ is; t0k3n-a") == f"abc is no secret, {MASK} is; {MASK}"
    assert secrets_in_url("postgresql://postgres@db/x") == ()
    assert secrets_in_url("http://[broken") == ()


def test_paths_of_this_machine_are_cut_to_their_names_and_those_of_addresses_are_not() -> None:
    said = "[Errno 2] '/usr/lib/app/x.py', sqlite:////usr/app/a.db, file:///etc/app/key, C:\\Users\\me\\notes.txt"
    assert without_paths(said) == "[Errno 2] '…/x.py', sqlite:///…/a.db, file://…/key, …/notes.txt"
    others = "POST /v1/chat/completions: https://example.org/usr/lib/x, a/b/c and/or 1/2/3"
    assert without_paths(others) == others
