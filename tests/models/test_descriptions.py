"""Descriptions of models from the known programs, and from endpoints that report nothing or lie."""

import asyncio
import json
from collections.abc import Iterator, Mapping

import pytest

from callboard.models import ModelDescription, OpenAICompatible, descriptions
from tests.fakes.http_answer import answering
from tests.fakes.model_servers import llama_cpp, ollama, sglang, vllm
from tests.fakes.openai_server import OpenAIServer, Page, Raw, Refusal, Silence

NOTHING = ModelDescription()
JSON = {"Content-Type": "application/json"}


async def describe(pages: Mapping[str, Page], name: str = "m") -> ModelDescription:
    async with OpenAIServer([], pages=pages) as server:
        model = OpenAICompatible(server.base_url, api_key="sk-the-key", model=name)
        try:
            return await model.describe()
        finally:
            await model.aclose()


async def test_llama_cpp_shows_the_template_and_a_prompt() -> None:
    pages = llama_cpp("{{ messages }}", prompt="<|im_start|>assistant\n<think>\n", path="/models/Qwen/Qwen3-8B.gguf")
    assert await describe(pages) == ModelDescription(
        "{{ messages }}", "<|im_start|>assistant\n<think>\n", ("Qwen/Qwen3-8B.gguf",), "llama.cpp"
    )


async def test_llama_cpp_is_asked_with_the_key_and_without_loading_model() -> None:
    async with OpenAIServer([], pages=llama_cpp("{{ messages }}", prompt="p")) as server:
        model = OpenAICompatible(server.base_url, api_key="sk-the-key", model="ggml-org/gemma-3:Q4 K")
        await model.describe()
        await model.aclose()
    [props] = [one for one in server.asked if one.route == "GET /props"]
    assert sorted(props.query.split("&")) == ["autoload=false", "model=ggml-org%2Fgemma-3%3AQ4+K"]
    assert {one.headers.get("authorization") for one in server.asked} == {"Bearer sk-the-key"}
    [made] = [one for one in server.asked if one.route == "POST /apply-template"]
    assert made.body["tools"]
    assert made.body["model"] == "ggml-org/gemma-3:Q4 K"


async def test_ollama_shows_template_and_original_name() -> None:
    found = await describe(ollama("{{ .Messages }}", basename="Qwen3"))
    assert found == ModelDescription("{{ .Messages }}", "", ("Qwen3",), "Ollama")


async def test_vllm_makes_a_prompt_of_a_question_with_a_tool() -> None:
    found = await describe(vllm(prompt="<tool_call>\n<｜Assistant｜><think>", root="/models/zai-org/GLM-4.6"))
    assert found == ModelDescription("", "<tool_call>\n<｜Assistant｜><think>", ("zai-org/GLM-4.6",), "vLLM")


async def test_an_adapter_has_the_name_of_the_model_that_it_adapts() -> None:
    listed = {"data": [{"id": "other", "root": "o"}, {"id": "m", "root": "/loras/m", "parent": "Qwen/Qwen3-8B"}]}
    found = await describe({"GET /v1/models": listed})
    assert found.other_names == ("loras/m", "Qwen/Qwen3-8B")


async def test_sglang_shows_model_path() -> None:
    assert await describe(sglang("/data/moonshotai/Kimi-K2-Instruct/")) == ModelDescription(
        other_names=("moonshotai/Kimi-K2-Instruct",), program="SGLang"
    )


async def test_a_redirect_is_not_followed() -> None:
    seen: list[str] = []
    with answering(200, json.dumps({"chat_template": "elsewhere"}), JSON, seen) as port:
        there = Raw([], {"Location": f"http://127.0.0.1:{port}/props", "Content-Length": "0"}, 307)
        routes = ["GET /props", "POST /api/show", "POST /tokenize", "GET /model_info"]
        found = await describe(dict.fromkeys(routes, there))
    assert (found, seen) == (NOTHING, [])


DEEP = b"[" * 200_000


@pytest.mark.parametrize(
    "page",
    [
        Refusal(404),
        Raw([b'{"chat_template": "x", "template": "x", "model_path": "x"}'], JSON, 500),
        Raw([b'{"chat_template": "x"}'], {"Content-Type": "text/html"}),
        Raw([b'{"chat_template": "x", "template": "x"}'], {**JSON, "Content-Length": "100"}),
        Raw([DEEP], JSON),
        Raw([b"\xff\xfe\x00"], JSON),
        {"chat_template": 1, "template": ["x"], "model_info": "x", "tokens": "x", "model_path": {}, "data": "x"},
        {"chat_template": None, "template": "", "model_info": {"general.basename": 1}, "tokens": [], "data": [None]},
        {"model_path": "qwen" * 100, "model_info": {"general.basename": "a\nb"}, "tokens": [1] * 20_000},
        {},
    ],
    ids=lambda page: type(page).__name__,
)
async def test_useless_answers_give_empty_description(page: Page) -> None:
    routes = ["GET /props", "POST /api/show", "POST /tokenize", "GET /model_info"]
    pages: dict[str, Page] = {**dict.fromkeys([*routes, "GET /v1/models"], page), "POST /detokenize": {"prompt": "p"}}
    assert await describe(pages) == NOTHING


async def test_endless_description_body_is_ignored() -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b'{"chat_template": "'
        while True:
            sent += 1
            yield b"x" * 65536

    assert await describe({"GET /props": Raw(endless(), JSON)}) == NOTHING
    assert sent * 65536 < 8 * descriptions.MAX_DESCRIPTION_BYTES


async def test_description_after_timeout_has_answers_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptions, "DESCRIPTION_SECONDS", 0.5)
    pages = {**ollama("{{ .Messages }}"), "GET /props": Silence(), "POST /tokenize": Silence()}
    async with asyncio.timeout(30):
        assert (await describe(pages)).template == "{{ .Messages }}"
