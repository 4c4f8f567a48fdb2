"""A scrape as Prometheus makes it: over HTTP, and read by its own parser."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Scrape:
    """The samples of one scrape: values by name and labels."""

    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]
    types: dict[str, str]

    @classmethod
    def read(cls, text: str) -> "Scrape":
        families = list(text_string_to_metric_families(text))
        found = [(sample, family) for family in families for sample in family.samples]
        samples = {(sample.name, frozenset(sample.labels.items())): sample.value for sample, _ in found}
        assert len(samples) == len(found), "a series that is told twice"
        return cls(samples, {family.name: family.type for family in families})

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.samples}

    def labels_of(self, name: str) -> set[str]:
        return {label for found, labels in self.samples for label, _ in labels if found == name}

    def values_of(self, name: str, label: str) -> set[str]:
        return {value for found, labels in self.samples for key, value in labels if (found, key) == (name, label)}

    def matching(self, name: str, **labels: str) -> Iterator[float]:
        wanted = set(labels.items())
        return (value for (found, its), value in self.samples.items() if found == name and wanted <= its)

    def sum(self, name: str, **labels: str) -> float:
        """The sum of all samples of that name with these labels; 0 where there are none."""
        return sum(self.matching(name, **labels))


async def scrape(client: httpx.AsyncClient, **headers: str) -> Scrape:
    answer = await client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Scrape.read(answer.text)


async def scrape_until(client: httpx.AsyncClient, holds: Callable[[Scrape], bool]) -> Scrape:
    """The first scrape of which that holds."""
    async with asyncio.timeout(30):
        while not holds(seen := await scrape(client)):
            pass
    return seen
