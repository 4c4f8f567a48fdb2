"""Embedding vectors: packing for the database, and comparison by cosine similarity. Pure."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable
from operator import mul

from callboard.storage.values import Vector


def pack_vector(vector: Vector) -> bytes:
    """Return the vector, normalised to length 1, as little-endian 32-bit floats.

    Raises `ValueError` if it is empty, zero or not finite.
    """
    length = math.sqrt(sum(map(mul, vector, vector)))
    if not vector or not math.isfinite(length) or length == 0:
        raise ValueError("a vector needs finite numbers, at least one of them not zero")
    return _to_little_endian(array("f", (value / length for value in vector))).tobytes()


def compare_vectors(vector: Vector, packed: Iterable[tuple[int, bytes]]) -> dict[int, float]:
    """Return the cosine similarity of `vector` and each packed vector, by the ids of the packed vectors.

    Vectors of another dimension are left out: an endpoint may have changed the model behind a name.
    """
    wanted = _unpack(pack_vector(vector))
    found = ((number, _unpack(data)) for number, data in packed)
    return {number: sum(map(mul, wanted, other)) for number, other in found if len(other) == len(wanted)}


def _unpack(data: bytes) -> array[float]:
    values = array("f")
    values.frombytes(data[: len(data) // values.itemsize * values.itemsize])
    return _to_little_endian(values)


def _to_little_endian(values: array[float]) -> array[float]:
    """Convert between the byte order of this machine and little-endian, in place."""
    if sys.byteorder == "big":
        values.byteswap()
    return values
