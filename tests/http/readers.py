"""Functions that reading processes run. A small module, because each process imports it."""

from callboard.reading.formats import Page


def hungry(_: int) -> Page:
    return Page("", "x" * 2**31)


def printing(_: int) -> Page:
    print("what a library has to say")
    return Page("title", "text")


def broken(_: int) -> Page:
    raise ZeroDivisionError
