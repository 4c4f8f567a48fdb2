"""The tree in the docstring is the tree in the code."""

import inspect
import re

from callboard import errors
from callboard.errors import CallboardError
from callboard.http.errors import STATUS, error_response


def classes() -> list[type[CallboardError]]:
    return [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, CallboardError)]


def drawn() -> dict[str, str]:
    """Each class in the docstring's tree with its parent."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"^([│ ├└─]*)([A-Z]\w+)(\s|$)", line):
            depth = len(match[1]) // 4
            if depth or match[2] == "CallboardError":
                path = [*path[:depth], match[2]]
                parents[match[2]] = path[depth - 1] if depth else "Exception"
    return parents


def test_the_whole_tree_is_drawn() -> None:
    assert drawn() == {cls.__name__: cls.__bases__[0].__name__ for cls in classes()}


def test_every_error_has_a_unique_code_and_a_status() -> None:
    codes = [cls.code for cls in classes()]
    assert len(set(codes)) == len(codes)
    for cls in classes():
        assert 400 <= error_response(cls("why")).status_code < 600
    assert set(STATUS) <= set(classes())
