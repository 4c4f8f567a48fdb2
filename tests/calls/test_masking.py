"""Secrets in what a tool gives, whatever class it is of."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from callboard.calls import mask_result
from callboard.redaction import LARGE_CHARS, Redaction

KEY = "sk-of-the-house-4711"


class Login(BaseModel):
    host: str
    key: str


class Handle:
    def __init__(self) -> None:
        self.name = KEY


@dataclass(frozen=True, slots=True)
class Pair:
    name: str
    value: str


class Point(NamedTuple):
    x: int
    name: str


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        (Pair("key", KEY), Pair("key", "[secret]")),
        ([Pair(KEY, "value")], [Pair("[secret]", "value")]),
        (OrderedDict(key=KEY), OrderedDict(key="[secret]")),
        (Point(1, KEY), Point(1, "[secret]")),
        ({KEY}, {"[secret]"}),
    ],
)
async def test_texts_are_masked_wherever_they_are_in_an_object(value: object, masked: object) -> None:
    found = await mask_result(value, Redaction([KEY]))
    assert found == masked
    assert type(found) is type(masked)


async def test_value_without_a_secret_or_with_a_cycle_stays_the_same_object() -> None:
    plain = Login(host="h", key="none")
    assert await mask_result(plain, Redaction([KEY])) is plain
    circle: list[Any] = []
    circle.append(circle)
    assert await mask_result(circle, Redaction([KEY])) is circle


async def test_attributes_are_masked_in_a_copy_and_not_in_the_object() -> None:
    handle = Handle()
    masked = await mask_result(handle, Redaction([KEY]))
    assert (masked.name, handle.name) == ("[secret]", KEY)


async def test_a_large_result_is_masked_too() -> None:
    large = [KEY, "x" * LARGE_CHARS]
    assert (await mask_result(large, Redaction([KEY])))[0] == "[secret]"
