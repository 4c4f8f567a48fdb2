"""scripts/prose counts idioms in docstrings and comments."""

import prose

SOURCE = '''
LIMIT = "what"
"""The docstring of an attribute, where it is."""


def find() -> None:
    """Return what was told."""
    # That of nobody.
'''


def test_idioms_of_docstrings_and_comments_are_counted_and_those_of_other_strings_are_not() -> None:
    counts = prose.count(prose.read_prose(SOURCE), prose.FIVE)
    assert counts == {"": 15, "what": 1, "where": 1, "that of": 1, "nobody": 1, "told": 1}
