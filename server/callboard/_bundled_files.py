"""The files that come with the package and are no modules of it: the pipe, and the script that installs it."""

from pathlib import Path

from callboard.errors import CallboardError

PACKAGE = Path(__file__).parent


def find_bundled_file(name: str) -> Path:
    """Return the path of a file that lies in the wheel as `callboard/_bundled/<name>`, in a checkout as `<name>`.

    Raises `CallboardError` if it is missing.
    """
    places = (PACKAGE / "_bundled" / name, PACKAGE.parent.parent / name)
    for place in places:
        if place.is_file():
            return place
    raise CallboardError(f"{name} is missing from this installation: install callboard again.")
