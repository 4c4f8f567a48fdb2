"""Gives a graph the answer that its model has given at another server, in place of the model's first answer."""

from collections.abc import AsyncIterator, Iterator
from functools import cache, wraps
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatResult

from callboard.frameworks.langgraph.hooks import current_hooks


@cache
def repeat_answers() -> None:
    """Patch LangChain so that a model which has answered is not asked. Only a continued turn changes anything.

    A request that is to be streamed becomes a request for a whole answer until the answer has been repeated.
    """
    generate = BaseChatModel._generate_with_cache
    agenerate = BaseChatModel._agenerate_with_cache
    stream = BaseChatModel.stream
    astream = BaseChatModel.astream

    @wraps(generate)
    def repeat(model: Any, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        return _find_answer(run_manager) or generate(model, messages, stop, run_manager, **options)

    @wraps(agenerate)
    async def arepeat(
        model: Any, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any
    ) -> ChatResult:
        return _find_answer(run_manager) or await agenerate(model, messages, stop, run_manager, **options)

    @wraps(stream)
    def stream_or_repeat(*args: Any, **options: Any) -> Iterator[AIMessageChunk]:
        return (_stream_whole if _may_repeat() else stream)(*args, **options)

    @wraps(astream)
    def astream_or_repeat(*args: Any, **options: Any) -> AsyncIterator[AIMessageChunk]:
        return (_astream_whole if _may_repeat() else astream)(*args, **options)

    BaseChatModel._generate_with_cache = repeat  # type: ignore[assignment, method-assign] # in front of it
    BaseChatModel._agenerate_with_cache = arepeat  # type: ignore[assignment, method-assign] # in front of it
    BaseChatModel.stream = stream_or_repeat  # type: ignore[method-assign] # in front of it
    BaseChatModel.astream = astream_or_repeat  # type: ignore[method-assign] # in front of it


def _find_answer(run_manager: Any) -> ChatResult | None:
    hooks = current_hooks.get()
    message = hooks.find_repeated(run_manager.run_id) if hooks and run_manager else None
    return ChatResult(generations=[ChatGeneration(message=message)]) if message else None


def _may_repeat() -> bool:
    hooks = current_hooks.get()
    return hooks is not None and hooks.may_repeat


def _stream_whole(model: BaseChatModel, *args: Any, **options: Any) -> Iterator[AIMessageChunk]:
    yield _to_chunk(model.invoke(*args, **options))


async def _astream_whole(model: BaseChatModel, *args: Any, **options: Any) -> AsyncIterator[AIMessageChunk]:
    yield _to_chunk(await model.ainvoke(*args, **options))


def _to_chunk(message: AIMessage) -> AIMessageChunk:
    return AIMessageChunk(**message.model_dump(exclude={"type"}))
