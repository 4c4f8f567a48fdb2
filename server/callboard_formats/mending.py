"""Proof that a mended object says what the broken text of it says, and nothing else.

Mending may add backslashes, commas and closing brackets. It may not invent a value, cut one or put one elsewhere:
each key and value has to stand in the text, in its order, each string between quotation marks.
"""

import re
from collections.abc import Iterator
from typing import Any

_GAP = re.compile(r"[\s,:{}\[\]]*")
_QUOTES = {'\\"': '\\"', '"': '"', "'": "'", "“": "”"}
_BARE_KEY = re.compile(r"[A-Za-z_$][\w$.-]*(?=\s*:)")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?=[\s,}\]]|\Z)")
_CONSTANTS = {None: ("null", "None"), True: ("true", "True"), False: ("false", "False")}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_ESCAPE = re.compile(r'\\(?:(?P<plain>["\\/\'])|(?P<control>[nrtbf])|u(?P<code>[0-9a-fA-F]{4}))')
_BEFORE_OPENING = frozenset(" \t\r\n([{=:,")


def says_the_same(value: dict[str, Any], text: str) -> bool:
    """Return whether `text` holds all that is in `value`, in its order, and nothing else."""
    at = 0
    gaps: list[str] = []
    for part, is_key in _parts(value):
        gaps.append(_gap(text, at))
        end = _end_of(part, text, at + len(gaps[-1]), is_key=is_key)
        if end is None:
            return False
        at = end
    gaps.append(_gap(text, at))
    brackets = "".join(gaps)
    opened, closed = (sum(brackets.count(one) for one in kind) for kind in ("{[", "}]"))
    return at + len(gaps[-1]) == len(text) and closed <= opened == _containers(value)


def _parts(value: Any) -> Iterator[tuple[Any, bool]]:
    """Yield the keys and the single values in the order of the text; which are keys is said with each."""
    match value:
        case dict():
            for key, inner in value.items():
                yield key, True
                yield from _parts(inner)
        case list():
            for inner in value:
                yield from _parts(inner)
        case _:
            yield value, False


def _containers(value: Any) -> int:
    match value:
        case dict():
            return 1 + sum(map(_containers, value.values()))
        case list():
            return 1 + sum(map(_containers, value))
        case _:
            return 0


def _gap(text: str, at: int) -> str:
    gap = _GAP.match(text, at)
    return gap[0] if gap else ""


def _end_of(part: Any, text: str, at: int, *, is_key: bool) -> int | None:
    """Return where `part` ends, which has to stand at `at`; None where it does not."""
    if isinstance(part, str):
        bare = _BARE_KEY.match(text, at) if is_key else None
        return bare.end() if bare and bare[0] == part else _end_of_string(part, text, at)
    if part is None or isinstance(part, bool):
        return next((at + len(word) for word in _CONSTANTS[part] if text.startswith(word, at)), None)
    number = _NUMBER.match(text, at)
    return number.end() if number and float(number[0]) == part else None


def _end_of_string(meant: str, text: str, at: int) -> int | None:
    """Return where the string ends that begins at `at`, if it says what was `meant`.

    Quotation marks without their backslash have to come in pairs: an unpaired one is the end of the string, and the
    repair has invented what follows.
    """
    opening = next((one for one in _QUOTES if text.startswith(one, at)), None)
    if opening is None:
        return None
    closing = _QUOTES[opening]
    begin = at + len(opening)
    at = begin
    within = False
    done = 0
    while done < len(meant):
        escape = _ESCAPE.match(text, at)
        said = _unescaped(escape) if escape else ""
        if escape and said == meant[done]:
            at = escape.end()
            done += 1
            continue
        if text[at : at + 1] != meant[done]:
            return None
        if meant[done] == closing:
            if not within and at > begin and text[at - 1] not in _BEFORE_OPENING:
                return None
            within = not within
        at += 1
        done += 1
    return at + len(closing) if text.startswith(closing, at) and not within else None


def _unescaped(escape: re.Match[str]) -> str:
    if escape["code"]:
        return chr(int(escape["code"], 16))
    return _CONTROLS[escape["control"]] if escape["control"] else escape["plain"]
