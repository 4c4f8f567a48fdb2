"""Removes secrets from results of frameworks' tools, which may be objects of any class; finds them in arguments."""

import asyncio
import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import is_dataclass
from types import ModuleType
from typing import Any, TypeVar, cast

from pydantic import BaseModel, SecretStr

from callboard.calls.tool import Tool
from callboard.redaction import LARGE_CHARS, Redaction

V = TypeVar("V")

MAX_DEPTH = 12
MAX_OBJECTS = 100_000
"""The most objects of one result that are searched: larger ones are not data but handles to something else."""


async def mask_result(value: V, redaction: Redaction) -> V:
    """Return `value` without secrets: the same object if it has none, otherwise a copy of the parts with secrets.

    Searches texts in lists, tuples, dicts, dataclasses, pydantic models and attributes of other objects. Does not
    search bytes and computed properties.
    """
    if isinstance(value, str):
        return cast(V, await redaction.large(value))
    chars = 0

    def count(part: Any) -> Any:
        nonlocal chars
        chars += len(part) if isinstance(part, str) else 0
        return part

    _Walk(count).walk(value)
    masking = _Walk(redaction.value)
    if chars < LARGE_CHARS:
        return cast(V, masking.walk(value))
    return cast(V, await asyncio.to_thread(masking.walk, value))


def find_secrets(arguments: object, tool: Tool | None, tools: Collection[Tool]) -> set[str]:
    """Return the texts, keys and numbers in the secret arguments of a call of `tool`, one of its agent's `tools`.

    An argument that `tool` does not have is also secret if another tool has a secret argument of that name. Returns an
    empty set if `arguments` are not an object.
    """
    if not isinstance(arguments, Mapping):
        return set()
    declared = set(tool.parameters.get("properties", ())) if tool else set()
    hidden = arguments.keys() & {name for one in tools for name in one.secret_arguments} - declared
    if tool:
        hidden |= tool.find_hidden(arguments)
    if not hidden:
        return set()
    # The names of fields are also in results and in other calls.
    schema_texts = set(_find_texts([one.parameters for one in tools]))
    return set(_find_texts([arguments[name] for name in hidden], schema_texts))


def _find_texts(value: Any, public_keys: Collection[str] = ()) -> Iterator[str]:
    """Yield the texts, keys and numbers in a value, without the field names of its objects."""
    todo = [value]
    while todo:
        match todo.pop():
            case SecretStr() as secret:
                yield secret.get_secret_value()
            case Mapping() as members:
                todo += [key for key in members if key not in public_keys]
                todo += members.values()
            case list() | tuple() | set() | frozenset() as members:
                todo += members
            case other if isinstance(other, BaseModel) or is_dataclass(other):
                todo += _fields_of(other).values()
            case other:
                yield str(other)


class _Walk:
    """Walks through a value and replaces each text and number by the result of `mask`."""

    def __init__(self, mask: Callable[[Any], Any]) -> None:
        self._mask = mask
        self._within: set[int] = set()
        self._seen = 0

    def walk(self, value: Any) -> Any:
        if isinstance(value, str):
            # A subclass of str, such as a member of an enumeration, is part of the program and no secret.
            return self._mask(value) if type(value) is str else value
        if isinstance(value, int | float):
            return self._mask(value)
        if len(self._within) >= MAX_DEPTH or self._seen >= MAX_OBJECTS or id(value) in self._within:
            return value
        self._seen += 1
        self._within.add(id(value))
        try:
            return self._walk_into(value)
        finally:
            self._within.discard(id(value))

    def _walk_into(self, value: Any) -> Any:
        if isinstance(value, dict):
            pairs = {self.walk(key): self.walk(one) for key, one in value.items()}
            is_same = all(key in pairs and pairs[key] is one for key, one in value.items())
            if is_same:
                return value
            twin = copy.copy(value)
            twin.clear()
            twin.update(pairs)
            return twin
        if isinstance(value, list | tuple | set | frozenset):
            members = [self.walk(one) for one in value]
            is_same = all(new is old for new, old in zip(members, value, strict=True))
            return value if is_same else getattr(value, "_make", type(value))(members)
        if isinstance(value, type | ModuleType | BaseException) or callable(value):
            return value
        fields = _fields_of(value)
        masked = {name: self.walk(one) for name, one in fields.items()}
        changed = {name: one for name, one in masked.items() if one is not fields[name]}
        return _with_fields(value, changed) if changed else value


def _fields_of(value: Any) -> Mapping[str, Any]:
    """Return the attributes of an object, by name."""
    slots = [name for kind in type(value).__mro__ for name in _slots_of(kind)]
    held = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    extra = (value.__pydantic_extra__ or {}) if isinstance(value, BaseModel) else {}
    return {**held, **getattr(value, "__dict__", {}), **extra}


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if not name.startswith("__"))


def _with_fields(value: Any, changed: Mapping[str, Any]) -> Any:
    if isinstance(value, BaseModel):
        return value.model_copy(update=changed)
    twin = copy.copy(value)
    for name, one in changed.items():
        # Works for frozen dataclasses too.
        object.__setattr__(twin, name, one)
    return twin
