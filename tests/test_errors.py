"""The docstring lists the classes of the code, and each has a code and a status."""

import inspect
import re

from callboard import errors
from callboard.errors import CallboardError
from callboard.http.errors import STATUS, error_response


def classes() -> list[type[CallboardError]]:
    return [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, CallboardError)]


def test_the_docstring_lists_every_class_below_its_base() -> None:
    lines = re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", errors.__doc__ or "", re.MULTILINE)
    listed = {name: base for base, names in lines for name in re.findall(r"\w+", names)}
    assert listed == {cls.__name__: cls.__bases__[0].__name__ for cls in classes() if cls is not CallboardError}


def test_every_error_has_a_unique_code_and_a_status() -> None:
    codes = [cls.code for cls in classes()]
    assert len(set(codes)) == len(codes)
    for cls in classes():
        assert 400 <= error_response(cls("why")).status_code < 600
    assert set(STATUS) <= set(classes())
