"""Resolves the name that a model wrote to a known tool.

A name is resolved by its spelling or by the table of names that models invent (`aliases`). A name with a typo is not
resolved. For such a name, the error message suggests a similar name.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from callboard_formats.aliases import MEANINGS, NAMESPACES, SUFFIXES, Meaning

MAX_NAME_CHARS = 128
"""The length limit of written names. OpenAI allows 64 characters, and models add namespaces and decoration."""

CLOSEST_RATIO = 0.6

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Resolved:
    """A known tool, and the arguments that the written name implies.

    Attributes:
        name: The tool's name.
        defaults: Arguments that the name implies, unless the model wrote them.
        repair: A short text about the change of the name; None if the name was exact.
        binding: A tool that does not accept the implied arguments must not run.
        otherwise: Other forms of `defaults`, for tools with other parameters.
        renames: Names of arguments (folded) that models use with the written name, and the tool's names for them.
    """

    name: str
    defaults: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    repair: str | None = None
    binding: bool = False
    otherwise: tuple[Mapping[str, Any], ...] = ()
    renames: Mapping[str, str] = field(default_factory=lambda: _NOTHING)


def resolve_name(written: str, known: Collection[str]) -> Resolved | None:
    """Return the tool of `known` that `written` means; None if it means no tool or several tools.

    The first of these rules that finds one tool decides:

    1. The exact name.
    2. The same letters in another spelling (case, `-`, `_`, spaces, camelCase).
    3. The same letters without decoration (`functions.search`, `search_tool`, `search()`).
    4. A Home Assistant tool without the name of its server (`HassTurnOn` for `home_HassTurnOn`).
    5. An invented name whose meaning is a known tool.
    6. A name inside an id (`functionssearch0`).
    """
    if written in known:
        return Resolved(written)
    if len(written) > MAX_NAME_CHARS:
        return None
    keys = list(_list_keys(written))
    intents = _group_intents(tuple(known))
    for names in (group_by_spelling(known), intents):
        for key in keys:
            if len(found := names.get(key, [])) == 1:
                return Resolved(found[0], repair=_describe_repair(written, found[0]))
    for meaning in filter(None, map(_index_meanings().get, keys)):
        if meaning.tool in known:
            return _resolve_invented(written, meaning)
        if len(found := intents.get(fold(meaning.intent), [])) == 1:
            return Resolved(found[0], repair=_describe_repair(written, found[0]), renames=_TO_INTENT)
    numbered = {name for one in _remove_number(written) for name in group_by_spelling(known).get(fold(one), [])}
    if len(numbered) == 1:
        [name] = numbered
        return Resolved(name, repair=_describe_repair(written, name))
    return None


def closest_name(written: str, known: Collection[str]) -> str | None:
    """Return the tool that an error message suggests ("Did you mean …?"); None if no name is similar."""
    resolved = resolve_name(written, known)
    if resolved is not None:
        return resolved.name
    for key in _list_keys(written[:MAX_NAME_CHARS]):
        if (found := closest_spelling(key, known)) is not None:
            return found
    return None


def closest_spelling(written: str, names: Collection[str]) -> str | None:
    """Return the name whose spelling is most similar to `written`; None if no name is similar."""
    spelled = {key: found[0] for key, found in group_by_spelling(names).items()}
    close = difflib.get_close_matches(fold(written[:MAX_NAME_CHARS]), spelled, n=1, cutoff=CLOSEST_RATIO)
    return spelled[close[0]] if close else None


def is_tool_name(written: str, known: Collection[str]) -> bool:
    """Return whether `written` means one of the `known` tools."""
    return resolve_name(written, known) is not None


_DECORATION = " \t\r\n`*_\"'()[]:;,"
_SEPARATORS = re.compile(r"[\s_\-.:/]+")
_INDEX = re.compile(r":\d+$")
_ID = re.compile(r"functions[._]?(.+?)(\d{0,4})", re.IGNORECASE)
_INTENT = re.compile(r"[A-Za-z0-9_-]*?_(Hass[A-Z][A-Za-z]*|GetLiveContext|GetDateTime)")
_TO_INTENT = MappingProxyType(
    {**dict.fromkeys(("entityid", "entity", "device", "devicename", "target"), "name"), "room": "area"}
)


@lru_cache(maxsize=4096)
def _list_keys(written: str) -> tuple[str, ...]:
    """Return the folded names by which `written` is looked up. The most literal name comes first."""
    # gpt-oss leaks its header into the name: `to=functions.search<|channel|>commentary`.
    bare = written.split("<|", 1)[0].strip(_DECORATION).removeprefix("to=")
    # Kimi numbers its calls: `functions.search:0`.
    bare = _INDEX.sub("", bare)
    whole = fold(bare)
    if not whole:
        return ()
    keys = [whole]
    parts = [part for part in _SEPARATORS.split(bare) if part]
    for namespace in NAMESPACES:
        head = _SEPARATORS.split(namespace)
        if [part.casefold() for part in parts[: len(head)]] == head and len(parts) > len(head):
            keys.append(fold("".join(parts[len(head) :])))
    keys += [whole.removesuffix(suffix) for suffix in SUFFIXES if whole.endswith(suffix) and len(whole) > len(suffix)]
    return tuple(keys)


def _remove_number(written: str) -> list[str]:
    """Return the possible names in one of Kimi's ids that has lost its punctuation: `functionssearch0`.

    The complete id is `functions.search:0`. Digits at the end may belong to the name or be the number of the call.
    """
    found = _ID.fullmatch(written.strip(_DECORATION))
    if found is None:
        return []
    name, digits = found.groups()
    return [name + digits[:kept] for kept in range(len(digits) + 1)]


def fold(name: str) -> str:
    """Return a name in lower case without separators, to compare spellings: `webfetch` for `Web-Fetch`."""
    return _SEPARATORS.sub("", name).casefold()


def group_by_spelling(names: Iterable[str]) -> Mapping[str, list[str]]:
    """Return the names grouped by their folded form."""
    # Cached, because the same tools are looked up at every marker of an answer.
    return _group_folded(tuple(names))


@lru_cache(maxsize=64)
def _group_folded(names: tuple[str, ...]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(fold(name), []).append(name)
    return found


@lru_cache(maxsize=64)
def _group_intents(names: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Return the tools of Home Assistant's MCP servers by their folded names without the server's prefix."""
    found: dict[str, list[str]] = {}
    for name in names:
        if (intent := _INTENT.fullmatch(name)) is not None:
            found.setdefault(fold(intent[1]), []).append(name)
    return found


@lru_cache(maxsize=1)
def _index_meanings() -> Mapping[str, Meaning]:
    return {fold(name): meaning for meaning in MEANINGS for name in meaning.names.split()}


def _resolve_invented(written: str, meaning: Meaning) -> Resolved:
    return Resolved(
        meaning.tool,
        MappingProxyType(dict(meaning.arguments)),
        _describe_repair(written, meaning.tool),
        meaning.binding,
        tuple(meaning.otherwise),
        meaning.renames,
    )


def _describe_repair(written: str, name: str) -> str:
    return f"tool name '{written}' taken as '{name}'"
