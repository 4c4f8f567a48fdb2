"""Ids of tool calls that every endpoint accepts: nine letters and digits, which Mistral requires.

https://docs.mistral.ai/api/ answers 400 for others: "Tool call id was … but must be a-z, A-Z, 0-9, with a length of 9".
"""

import re
from hashlib import blake2b
from secrets import choice
from string import ascii_letters, digits

_CHARACTERS = ascii_letters + digits
_LENGTH = 9
_FITS = re.compile(r"[A-Za-z0-9]{9}")


def new_call_id() -> str:
    """Return a new id."""
    return "".join(choice(_CHARACTERS) for _ in range(_LENGTH))


def nine_characters(call_id: str) -> str:
    """Return `call_id` if it has nine letters and digits; otherwise nine that are computed from it."""
    if _FITS.fullmatch(call_id):
        return call_id
    number = int.from_bytes(blake2b(call_id.encode(), digest_size=16).digest())
    characters = []
    for _ in range(_LENGTH):
        number, place = divmod(number, len(_CHARACTERS))
        characters.append(_CHARACTERS[place])
    return "".join(characters)
