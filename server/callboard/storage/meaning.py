"""Search by meaning: give texts that have no vector one, then make one ranking of two, by meaning and by words.

Vectors are kept as bytes, and compared by the angle between them.
"""

from __future__ import annotations

import asyncio
import math
import sys
from array import array
from collections.abc import Iterable, Sequence
from operator import mul
from typing import Protocol

from callboard.storage.values import Embed, Meant, Memory, Vector

MAX_COMPARED = 2_000
"""Memories of a user that a search compares by meaning, those that were changed last."""
MAX_EMBEDDED = 320
"""The most of those that one search may have embedded; the others are found by their words until the next."""
BATCH = 32
"""Texts that the endpoint is sent at one time."""
FUSION = 60
"""The number that says how little the first places count where two rankings become one (reciprocal rank fusion)."""


class VectorMemories(Protocol):
    """The memories of one user with their vectors, which makes them found by what they mean."""

    async def search(self, query: str, limit: int) -> list[Memory]:
        """Return those with any word of the query, best first; one without words finds nothing."""

    async def without_vector(self, model: str) -> list[Memory]:
        """Return those that have no vector of a model, at most `MAX_COMPARED`, last changed first."""

    async def keep_vectors(self, embedded: Sequence[tuple[Memory, bytes]], model: str) -> None:
        """Keep their vectors, but for those that were changed or deleted meanwhile."""

    async def with_vectors(self, model: str) -> list[tuple[Memory, bytes]]:
        """Return those that have a vector of a model, of the `MAX_COMPARED` that were changed last."""

    async def search_by_meaning(self, query: str, limit: int, embed: Embed, model: str) -> Meant:
        """Return those nearest to the query in meaning and in words, best first.

        `embed` is called for the query and for memories that have no vector of `model` yet, and what it raises is
        raised. Raises `ValueError` if what it gives is no vector.
        """
        [wanted] = await embed([query])
        pack_vector(wanted)
        not_compared = await self._embed_missing(embed, model)
        compared = {memory.id: (memory, vector) for memory, vector in await self.with_vectors(model)}
        vectors = [(number, vector) for number, (_, vector) in compared.items()]
        # Not in the loop: thousands of vectors take as long as an answer does.
        near = await asyncio.to_thread(compare_vectors, wanted, vectors)
        by_meaning = sorted(near, key=lambda number: -near[number])
        by_words = await self.search(query, limit)
        found = {number: compared[number][0] for number in by_meaning[:limit]}
        found |= {memory.id: memory for memory in by_words}
        score = dict.fromkeys(found, 0.0)
        for ranked in (by_meaning, [memory.id for memory in by_words]):
            for place, number in enumerate(ranked):
                if number in score:
                    score[number] += 1 / (FUSION + place)
        best = sorted(found.values(), key=lambda memory: -score[memory.id])[:limit]
        return Meant(tuple(best), {memory.id: near[memory.id] for memory in best if memory.id in near}, not_compared)

    async def _embed_missing(self, embed: Embed, model: str) -> int:
        """Give the memories that have no vector one; returns how many are left without."""
        missing = await self.without_vector(model)
        for start in range(0, min(len(missing), MAX_EMBEDDED), BATCH):
            batch = missing[start : start + BATCH]
            vectors = await embed([memory.text for memory in batch])
            packed = [(memory, pack_vector(one)) for memory, one in zip(batch, vectors, strict=True)]
            await self.keep_vectors(packed, model)
        return max(0, len(missing) - MAX_EMBEDDED)


def pack_vector(vector: Vector) -> bytes:
    """Return the vector at length 1, as little-endian 32-bit floats; raises `ValueError` where it has no direction."""
    length = math.sqrt(sum(map(mul, vector, vector)))
    if not vector or not math.isfinite(length) or length == 0:
        raise ValueError("a vector needs numbers, and not zeros alone")
    return _swap_bytes(array("f", (value / length for value in vector))).tobytes()


def compare_vectors(vector: Vector, kept: Iterable[tuple[int, bytes]]) -> dict[int, float]:
    """Return the nearness of each of the packed vectors to `vector`, from −1 to 1, by their numbers.

    One of another dimension, which another model of the same name made, is left out.
    """
    wanted = _unpack(pack_vector(vector))
    found = ((number, _unpack(data)) for number, data in kept)
    return {number: sum(map(mul, wanted, other)) for number, other in found if len(other) == len(wanted)}


def _unpack(data: bytes) -> array[float]:
    values = array("f")
    values.frombytes(data[: len(data) // values.itemsize * values.itemsize])
    return _swap_bytes(values)


def _swap_bytes(values: array[float]) -> array[float]:
    if sys.byteorder == "big":
        values.byteswap()
    return values
