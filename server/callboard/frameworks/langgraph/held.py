"""What the nodes of a graph hold: models, prompts, which LangGraph has no name for."""

import inspect
from collections.abc import Iterator

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableBinding, RunnableSequence
from langgraph.pregel import Pregel

from callboard.frameworks.langgraph.stream import Graph


def held_by_nodes(graph: Graph) -> Iterator[object]:
    """Yield what the functions of the graph's nodes see from where they were made."""
    for node in graph.nodes.values():
        for function in (getattr(node.bound, "afunc", None), getattr(node.bound, "func", None)):
            yield from _held(function)


def model_of(graph: Graph) -> BaseChatModel | None:
    """Return the first model that a node of the graph is, or holds, or names in its function; None where none does."""
    found = (model for node in graph.nodes.values() for model in _models(node.bound))
    nested = (model for _, inner in graph.get_subgraphs() if isinstance(inner, Pregel) and (model := model_of(inner)))
    return next(found, None) or next(nested, None)


def _models(value: object) -> Iterator[BaseChatModel]:
    match value:
        case BaseChatModel():
            yield value
        case RunnableBinding():
            yield from _models(value.bound)
        case RunnableSequence():
            for step in value.steps:
                yield from _models(step)
        case Runnable() if not isinstance(value, Pregel):
            for function in (getattr(value, "afunc", None), getattr(value, "func", None)):
                for held in _held(function):
                    # What a function's function holds is not its own.
                    if isinstance(held, BaseChatModel | RunnableBinding | RunnableSequence):
                        yield from _models(held)


def _held(function: object) -> Iterator[object]:
    """Return what a function sees from where it was made, and what a method's object has."""
    function = inspect.unwrap(function) if callable(function) else function
    if inspect.ismethod(function):
        yield from vars(function.__self__).values()
        function = function.__func__
    if inspect.isfunction(function):
        seen = inspect.getclosurevars(function)
        yield from [*seen.nonlocals.values(), *seen.globals.values()]
