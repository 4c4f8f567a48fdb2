"""The doctor's check of the embedding endpoint: reachable, key accepted, model exists."""

import asyncio
import socket
from typing import Any

import pytest

from tests.cli.conftest import Diagnosis, Doctor
from tests.fakes.embeddings import EmbeddingServer

KEY = "sk-embeddings"


async def examine(doctor: Doctor, server: EmbeddingServer, *arguments: str, **settings: str) -> Diagnosis:
    given = {"EMBEDDING_BASE_URL": server.base_url, "EMBEDDING_MODEL": "e5", "EMBEDDING_API_KEY": KEY, **settings}
    return await asyncio.to_thread(doctor, *arguments, **given)


async def test_a_working_endpoint_is_reported_with_its_dimension(doctor: Doctor) -> None:
    async with EmbeddingServer() as server:
        found = await examine(doctor, server)
    assert found.of("embeddings") == ["✓ embeddings: the endpoint answers and e5 gives vectors of 6 numbers"]
    assert server.keys == [f"Bearer {KEY}"]


async def test_the_models_endpoint_and_key_are_used_by_default(doctor: Doctor) -> None:
    async with EmbeddingServer() as server:
        settings = {"MODEL_BASE_URL": server.base_url, "MODEL_API_KEY": "sk-model", "EMBEDDING_MODEL": "e5"}
        found = await asyncio.to_thread(doctor, **settings)
    assert found.of("embeddings")[0].startswith("✓")
    assert server.keys == ["Bearer sk-model"]


def test_without_an_endpoint_the_search_by_words_is_reported(doctor: Doctor) -> None:
    assert doctor().of("embeddings") == ["– embeddings: no endpoint is set; memories are searched by their words"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"EMBEDDING_MODEL": "e5"}, "CALLBOARD_EMBEDDING_BASE_URL"),
        ({"EMBEDDING_BASE_URL": "http://127.0.0.1:9/v1"}, "CALLBOARD_EMBEDDING_MODEL"),
        ({"EMBEDDING_MODEL": "e5", "EMBEDDING_BASE_URL": "http://127.0.0.1:9/v1"}, "cannot be reached"),
        ({"EMBEDDING_MODEL": "e5", "EMBEDDING_BASE_URL": "http://[::1"}, "CALLBOARD_EMBEDDING_BASE_URL"),
    ],
)
def test_incomplete_settings_and_an_unreachable_endpoint_are_reported(
    doctor: Doctor, settings: dict[str, str], said: str
) -> None:
    [line] = doctor(**settings).broken
    assert said in line


@pytest.mark.parametrize(
    ("status", "said"), [(401, "CALLBOARD_EMBEDDING_API_KEY"), (404, "CALLBOARD_EMBEDDING_MODEL (e5)"), (500, "500")]
)
async def test_a_refused_key_and_a_missing_model_are_reported_without_the_key(
    doctor: Doctor, status: int, said: str
) -> None:
    async with EmbeddingServer() as server:
        server.status = status
        found = await examine(doctor, server)
    [line] = found.of("embeddings")
    assert line.startswith("✗")
    assert said in line
    assert KEY not in "\n".join(found.lines)


@pytest.mark.parametrize("garbled", [{}, {"data": []}, {"data": [{"embedding": [0.0]}] * 2}, "no"])
async def test_an_answer_without_vectors_is_reported(doctor: Doctor, garbled: Any) -> None:
    async with EmbeddingServer() as server:
        server.garbled = garbled
        [line] = (await examine(doctor, server)).of("embeddings")
    assert line.startswith("✗")
    assert "one vector for each text" in line


def test_an_endpoint_that_does_not_answer_is_reported_after_the_timeout(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        [line] = doctor("--timeout", "0.5", EMBEDDING_BASE_URL=url, EMBEDDING_MODEL="e5").of("embeddings")
    assert "did not answer within 0.5 s" in line
