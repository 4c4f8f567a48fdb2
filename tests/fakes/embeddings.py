"""An embedding endpoint over real HTTP that knows a few meanings: words of one meaning point the same way.

It is the endpoint of Open WebUI's knowledge.
"""

import json
import re
from typing import Self

from tests.skills.web.sites import Heard, Reply, Site, answer

MEANINGS = (
    {"tea", "beverage", "beverages", "coffee", "drink", "drinks", "thirsty"},
    {"cat", "cats", "dog", "dogs", "pet", "pets", "animal"},
    {"chess", "game", "games", "hobby"},
    {"oslo", "lisbon", "city", "home", "lives"},
)


class EmbeddingServer:
    """The server; use it as an asynchronous context manager."""

    def __init__(self) -> None:
        self._site = Site(self._answer)

    @property
    def base_url(self) -> str:
        return f"{self._site.url}/v1"

    async def __aenter__(self) -> Self:
        await self._site.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._site.__aexit__(*exception)

    def _answer(self, heard: Heard) -> Reply:
        assert (heard.method, heard.path) == ("POST", "/v1/embeddings")
        body = json.loads(heard.body)
        data = [
            {"object": "embedding", "index": place, "embedding": vector(text)}
            for place, text in enumerate(body["input"])
        ]
        # In any order: it is the index that counts.
        return answer({"object": "list", "model": body["model"], "data": data[::-1]})


def vector(text: str) -> list[float]:
    """The meanings of a text, and a little of its own, as every text has."""
    words = re.findall(r"\w+", text.casefold())
    counts = [float(sum(word in meaning for word in words)) for meaning in MEANINGS]
    return [*counts, 0.3, 0.01 * (len(text) % 7)]
