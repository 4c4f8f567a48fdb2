"""Finds objects that the functions of a graph's nodes have captured, such as models.

LangGraph has no public access to them.
"""

import inspect
from collections.abc import Iterator

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableBinding, RunnableSequence
from langgraph.pregel import Pregel

from callboard.frameworks.langgraph.stream import Graph


def find_model(graph: Graph) -> BaseChatModel | None:
    """Return the first model that is a node of the graph or is used by a node's function, or None."""
    found = (model for node in graph.nodes.values() for model in _find_models(node.bound))
    nested = (model for _, inner in graph.get_subgraphs() if isinstance(inner, Pregel) and (model := find_model(inner)))
    return next(found, None) or next(nested, None)


def _find_models(value: object) -> Iterator[BaseChatModel]:
    match value:
        case BaseChatModel():
            yield value
        case RunnableBinding():
            yield from _find_models(value.bound)
        case RunnableSequence():
            for step in value.steps:
                yield from _find_models(step)
        case Runnable() if not isinstance(value, Pregel):
            for function in (getattr(value, "afunc", None), getattr(value, "func", None)):
                for value_used in _captured_values(function):
                    # Functions inside captured functions are not searched.
                    if isinstance(value_used, BaseChatModel | RunnableBinding | RunnableSequence):
                        yield from _find_models(value_used)


def _captured_values(function: object) -> Iterator[object]:
    """Yield the non-local and global variables that a function uses, and the attributes of a method's object."""
    function = inspect.unwrap(function) if callable(function) else function
    if inspect.ismethod(function):
        yield from vars(function.__self__).values()
        function = function.__func__
    if inspect.isfunction(function):
        seen = inspect.getclosurevars(function)
        yield from [*seen.nonlocals.values(), *seen.globals.values()]
