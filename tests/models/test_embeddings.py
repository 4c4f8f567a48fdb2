"""The embedding endpoint: its vectors, and errors for invalid answers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import SecretStr

from callboard.errors import ModelError, ModelTimeout, ModelUnreachable, SettingsError
from callboard.models import EmbeddingEndpoint
from callboard.skills.memory import MemorySettings
from tests.fakes.embeddings import EmbeddingServer, vector
from tests.skills.web.sites import Reply, Site


@pytest.fixture
async def embedder() -> AsyncIterator[EmbeddingServer]:
    async with EmbeddingServer() as server:
        yield server


async def test_the_vectors_come_in_the_order_of_the_texts(embedder: EmbeddingServer) -> None:
    endpoint = EmbeddingEndpoint(f"{embedder.base_url}/", "a-key", "m")
    texts = ["tea", "cats and dogs", ""]
    assert await endpoint.embed(texts) == [vector(text) for text in texts]
    assert embedder.keys == ["Bearer a-key"]


@pytest.mark.parametrize(
    "garbled",
    [
        [],
        {},
        {"data": None},
        {"data": []},
        {"data": [{"embedding": []}]},
        {"data": [{"embedding": ["x"]}]},
        {"data": [{"embedding": [0.0, 0.0]}]},
        {"data": [{"embedding": [1e300, 1.0]}]},
        {"data": [{"embedding": [float("inf")]}]},
        {"data": [{"index": 1, "embedding": [1.0]}]},
        {"data": [{"index": [], "embedding": [1.0]}]},
        {"data": [{"embedding": [1.0]}, {"embedding": [1.0]}]},
        {"data": [{"embedding": [1.0] * 20_000}]},
        "text",
    ],
)
async def test_answer_without_vector_for_each_text_is_error(embedder: EmbeddingServer, garbled: Any) -> None:
    embedder.garbled = garbled
    with pytest.raises(ModelError, match="did not send one vector for each text"):
        await EmbeddingEndpoint(embedder.base_url, None, "m").embed(["tea"])


@pytest.mark.parametrize(
    ("status", "said"), [(401, "refused the key"), (404, "EMBEDDING_MODEL"), (500, "answered 500")]
)
async def test_a_refusal_names_the_setting_and_never_the_key(embedder: EmbeddingServer, status: int, said: str) -> None:
    embedder.status = status
    with pytest.raises(ModelError, match=said) as raised:
        await EmbeddingEndpoint(embedder.base_url, "a-secret-key", "m").embed(["tea"])
    assert "a-secret-key" not in str(raised.value)


async def test_a_redirect_is_not_followed(embedder: EmbeddingServer) -> None:
    async with Site(Reply(b"", 307, {"Location": f"{embedder.base_url}/embeddings"})) as elsewhere:
        with pytest.raises(ModelError, match="answered 307"):
            await EmbeddingEndpoint(elsewhere.url, "a-key", "m").embed(["tea"])
    assert embedder.keys == []


async def test_timeout_and_unreachable_endpoint_are_distinguished() -> None:
    async with Site(Reply(b"{", ending="hang")) as silent:
        with pytest.raises(ModelTimeout, match="did not answer"):
            await EmbeddingEndpoint(silent.url, None, "m", timeout_seconds=1).embed(["tea"])
        gone = silent.url
    with pytest.raises(ModelUnreachable, match="cannot be reached"):
        await EmbeddingEndpoint(gone, None, "m").embed(["tea"])
    with pytest.raises(ModelError, match="CALLBOARD_EMBEDDING_BASE_URL"):
        await EmbeddingEndpoint("ht!tp://[", None, "m").embed(["tea"])


async def test_endless_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.models.embeddings.MAX_ANSWER_BYTES", 1_000)
    async with Site(Reply(b"x" * 1_001)) as endless:
        with pytest.raises(ModelError, match="sent more than"):
            await EmbeddingEndpoint(endless.url, None, "m").embed(["tea"])


async def test_with_a_model_alone_the_models_endpoint_and_its_key_are_used(embedder: EmbeddingServer) -> None:
    settings = MemorySettings(model_base_url=embedder.base_url, model_api_key=SecretStr("its"), embedding_model="m")
    endpoint = settings.endpoint()
    assert endpoint is not None
    await endpoint.embed(["tea"])
    assert embedder.keys == ["Bearer its"]


async def test_an_endpoint_of_its_own_does_not_get_the_models_key(embedder: EmbeddingServer) -> None:
    settings = MemorySettings(
        model_base_url="http://127.0.0.1:1/v1",
        model_api_key=SecretStr("its"),
        embedding_base_url=embedder.base_url,
        embedding_model="m",
    )
    endpoint = settings.endpoint()
    assert endpoint is not None
    await endpoint.embed(["tea"])
    assert embedder.keys == [""]


def test_without_an_embedding_model_there_is_no_endpoint() -> None:
    assert MemorySettings(model_base_url="http://127.0.0.1:1/v1").endpoint() is None


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"CALLBOARD_EMBEDDING_BASE_URL": "http://localhost:1/v1"}, "CALLBOARD_EMBEDDING_MODEL"),
        ({"CALLBOARD_EMBEDDING_MODEL": "m"}, "CALLBOARD_EMBEDDING_BASE_URL"),
    ],
)
def test_incomplete_embedding_settings_are_refused(variables: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        MemorySettings.load(variables)
