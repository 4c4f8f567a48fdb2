"""The extras of the package (`pip install 'callboard[web]'`), and whether their libraries are installed."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

LIBRARIES: Mapping[str, Sequence[str]] = {
    "home": ("websockets",),
    "mcp": ("mcp",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "postgresql": ("asyncpg",),
    "redis": ("redis",),
    "web": ("charset_normalizer", "cryptography", "ddgs", "lxml_html_clean", "pypdf", "trafilatura"),
}
"""The modules of each extra, except extras for frameworks."""


def is_installed(extra: str) -> bool:
    """Return whether every library of `extra` can be imported, without importing it."""
    return all(map(_can_import, LIBRARIES[extra]))


def _can_import(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:
        # The package of a submodule is missing.
        return False


def how_to_install(extra: str) -> str:
    """Return the command that installs `extra`."""
    return f"pip install 'callboard[{extra}]'"
