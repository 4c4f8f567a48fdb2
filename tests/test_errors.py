"""Each error has a code and a status."""

import inspect

from callboard import errors
from callboard.errors import CallboardError
from callboard.http.errors import STATUS, error_response


def classes() -> list[type[CallboardError]]:
    return [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, CallboardError)]


def test_every_error_has_a_unique_code_and_a_status() -> None:
    codes = [cls.code for cls in classes()]
    assert len(set(codes)) == len(codes)
    for cls in classes():
        assert 400 <= error_response(cls("why")).status_code < 600
    assert set(STATUS) <= set(classes())
