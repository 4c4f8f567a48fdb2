"""Requests made to block a server: at its limits of size, number and structure, or beyond them."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from callboard_protocol import EXTERNAL_ID_PREFIX

MEBIBYTE = 2**20
MOST_CHARS = 30 * MEBIBYTE
"""Just below the default size limit."""

MOST_ESCAPES = 1_999_000
"""Just below what is read."""

Body = tuple[str, bytes]
"""A path, and what is posted there."""


def run(*messages: Mapping[str, Any]) -> Body:
    return "/v1/runs", json.dumps({"agent": "scripted", "messages": messages}).encode()


def system(content: object) -> dict[str, Any]:
    return {"role": "system", "content": content}


def user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: object) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def called(count: int) -> Body:
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": "t", "arguments": "{}"}} for n in range(count)]
    results = ({"role": "tool", "tool_call_id": f"c{n}", "content": "r"} for n in reversed(range(count)))
    return run({"role": "assistant", "tool_calls": calls}, *results, user("hi"))


def resulted_without_calls(count: int) -> Body:
    """Return results without calls, then as many messages at which the server looks at the results before them."""
    results = ({"role": "tool", "tool_call_id": f"{EXTERNAL_ID_PREFIX}{n}", "content": ""} for n in range(count))
    return run(*results, *[user("a")] * count)


def resulted(content: str) -> Body:
    call = {"id": "c", "function": {"name": "t"}}
    result = {"role": "tool", "tool_call_id": "c", "content": content}
    return run({"role": "assistant", "tool_calls": [call]}, result, user("hi"))


def block(number: int) -> str:
    return (
        f'\n\n<details type="tool_calls" id="b{number}" name="t" arguments="{{}}" done="true" result="x">\n</details>'
    )


def attached(url: str, count: int = 1) -> Body:
    file = {"type": "file", "file": {"filename": "a", "file_data": url}}
    return run(user([file] * count))


def deep(depth: int) -> Body:
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    return "/v1/runs", b'{"agent":"scripted","messages":[{"role":"user","content":[%b]}]}' % nested


def answer_of(text: Callable[[], str]) -> Callable[[], Body]:
    return lambda: run(assistant(text()), user("hi"))


def hostile_bodies() -> dict[str, Callable[[], Body]]:
    """Return functions that build the requests, by problem; each is built when sent, as all together are 600 MB."""
    tag = '<details type="tool_calls" id="b" name="t" done="true">'
    texts: dict[str, Callable[[], str]] = {
        "words": lambda: "word " * (MOST_CHARS // 5),
        "letters of another script": lambda: "я" * MOST_ESCAPES,
        "citations": lambda: "[1#source1]" * (MOST_CHARS // 11),
        "tags that open": lambda: '\n<details type="tool_calls" ' * (MOST_CHARS // 31),
        "attributes": lambda: "<details " + 'a="" ' * (MOST_CHARS // 9) + ">\n</details>",
        "line breaks in a block": lambda: f"{tag}{chr(10) * MOST_ESCAPES}</details>",
    }
    long_answers = {f"an answer of 30 MiB of {name}": answer_of(text) for name, text in texts.items()}
    marks = {"agent": "scripted", "chat_id": "chat", "messages": [user("a" + "\u0301\u0316" * 50_000)]}
    return {
        **long_answers,
        "beginnings of a code interpreter": lambda: run(
            system("##### Pyodide Environment\n" * (MOST_ESCAPES // 26)), user("hi")
        ),
        "blanks in a system prompt": lambda: run(system(f"a{' ' * MOST_CHARS}b"), user("hi")),
        "skills of a question": lambda: run(user("<skill></skill>" * (MOST_CHARS // 15))),
        "accents on one letter": lambda: ("/v1/runs", json.dumps(marks).encode()),
        "20,000 calls": lambda: called(20_000),
        "9,000 blocks": lambda: run(assistant("".join(map(block, range(9_000)))), user("hi")),
        "9,000 messages": lambda: run(*[user("a"), assistant("b")] * 4_500),
        "9,000 questions of 3,000 letters": lambda: run(*[user("a" * 3_000)] * 9_000),
        "9,000 system prompts of 3,000 letters": lambda: run(*[system("a" * 3_000)] * 9_000, user("hi")),
        "4,900 results without calls": lambda: resulted_without_calls(4_900),
        "90,000 empty parts": lambda: run(user([{}] * 90_000)),
        "a million wrong messages": lambda: (
            "/v1/runs",
            b'{"agent":"scripted","messages":[%b1]}' % (b"1," * 1_000_000),
        ),
        "a million keys": lambda: (
            "/v1/runs",
            json.dumps({"agent": "scripted", **{f"k{n}": n for n in range(1_000_000)}}).encode(),
        ),
        "90,000 keys": lambda: run(user([{f"k{n}": n for n in range(90_000)}])),
        "quotation marks": lambda: ("/v1/runs", b'"' * MOST_CHARS),
        "brackets": lambda: ("/v1/runs", b"[" * MOST_CHARS),
        "digits": lambda: ("/v1/runs", b'{"agent":%b}' % (b"1" * MOST_CHARS)),
        "deep JSON": lambda: deep(90_000),
        "200,000 halves of emoji": lambda: run(user("\ud83d" * 200_000)),
        "a result of 90,000 sources": lambda: resulted(
            json.dumps([{"source_number": n, "title": "x" * 20} for n in range(90_000)])
        ),
        "a result of 15 million numbers": lambda: resulted("[" + "1," * (MOST_CHARS // 2) + "1]"),
        "a file of 30 MiB": lambda: attached("data:text/plain;base64," + "QUFB" * (MOST_CHARS // 4)),
        "9,000 small files": lambda: attached("data:text/plain;base64,aGVsbG8=", 9_000),
        "20,000 items of a response": lambda: (
            "/v1/responses",
            json.dumps(
                {
                    "model": "scripted",
                    "input": [{"type": "function_call", "call_id": "c", "name": "t"}] * 10_000
                    + [{"type": "function_call_output", "call_id": "c", "output": "x"}] * 10_000,
                }
            ).encode(),
        ),
        "90,000 tools of a completion": lambda: (
            "/v1/chat/completions",
            json.dumps({"model": "scripted", "messages": [user("hi")], "tools": [{}] * 90_000}).encode(),
        ),
    }
