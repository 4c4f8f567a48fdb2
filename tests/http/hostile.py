"""Requests made to block a server: at its limits of size, number and structure, or beyond them."""

import json
from collections.abc import Callable, Mapping
from typing import Any

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
        "citations": lambda: "[1#source1]" * (MOST_CHARS // 11),
        "tags that open": lambda: '\n<details type="tool_calls" ' * (MOST_CHARS // 31),
        "line breaks in a block": lambda: f"{tag}{chr(10) * MOST_ESCAPES}</details>",
    }
    long_answers = {f"an answer of 30 MiB of {name}": answer_of(text) for name, text in texts.items()}
    marks = {"agent": "scripted", "chat_id": "chat", "messages": [user("a" + "\u0301\u0316" * 50_000)]}
    return {
        **long_answers,
        "accents on one letter": lambda: ("/v1/runs", json.dumps(marks).encode()),
        "20,000 calls": lambda: called(20_000),
        "9,000 blocks": lambda: run(assistant("".join(map(block, range(9_000)))), user("hi")),
        "9,000 messages": lambda: run(*[user("a"), assistant("b")] * 4_500),
        "90,000 empty parts": lambda: run(user([{}] * 90_000)),
        "a million keys": lambda: (
            "/v1/runs",
            json.dumps({"agent": "scripted", **{f"k{n}": n for n in range(1_000_000)}}).encode(),
        ),
        "quotation marks": lambda: ("/v1/runs", b'"' * MOST_CHARS),
        "digits": lambda: ("/v1/runs", b'{"agent":%b}' % (b"1" * MOST_CHARS)),
        "deep JSON": lambda: deep(90_000),
        "200,000 halves of emoji": lambda: run(user("\ud83d" * 200_000)),
        "a result of 15 million numbers": lambda: resulted("[" + "1," * (MOST_CHARS // 2) + "1]"),
        "a file of 30 MiB": lambda: attached("data:text/plain;base64," + "QUFB" * (MOST_CHARS // 4)),
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
    }
