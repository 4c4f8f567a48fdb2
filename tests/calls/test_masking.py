"""Secrets in what a tool gives, whatever class it is of."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from callboard.calls.masking import mask_result
from callboard.redaction import LARGE_CHARS, Redaction

KEY = "sk-of-the-house-4711"


class Login(BaseModel):
    key: str


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
    plain = Login(key="none")
    assert await mask_result(plain, Redaction([KEY])) is plain
    circle: list[Any] = []
    circle.append(circle)
    assert await mask_result(circle, Redaction([KEY])) is circle


async def test_attributes_are_masked_in_a_copy_and_not_in_the_object() -> None:
    login = Login(key=KEY)
    large: list[Any] = [login, "x" * LARGE_CHARS]
    [masked, _] = await mask_result(large, Redaction([KEY]))
    assert (masked.key, login.key) == ("[secret]", KEY)
