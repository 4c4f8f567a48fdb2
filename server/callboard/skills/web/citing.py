"""Numbered sources: what search results and pages are to the model, and to Open WebUI."""

from collections.abc import Mapping
from typing import Any

from callboard_protocol import Source


def citation(item: Mapping[str, Any], excerpt: str) -> Source:
    """Open WebUI's citation of an item, which has a `source_number`, a `title` and a `url`."""
    name, url = item["title"] or item["url"], item["url"]
    metadata = {"source": url, "name": name, "source_number": item["source_number"]}
    return Source(source={"name": name, "url": url}, document=(excerpt,), metadata=(metadata,))
