"""Files that the wheel contains beside the package: the pipe, the script that installs it, the demo agent."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from callboard.errors import CallboardError

PACKAGE = Path(__file__).parent


def find_bundled_file(name: str) -> Path:
    """Return the path of a file that is `callboard/_bundled/<name>` in the wheel and `<name>` in a checkout.

    Raises `CallboardError` if it is missing.
    """
    for path in (PACKAGE / "_bundled" / name, PACKAGE.parent.parent / name):
        if path.is_file():
            return path
    raise CallboardError(f"{name} is missing from this installation: install callboard again.")


def load_bundled_module(name: str) -> Any:
    """Run a bundled Python file as the module `callboard_bundled_<stem>` and return it; `name` as for the file."""
    file = find_bundled_file(name)
    spec = spec_from_file_location(f"callboard_bundled_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    # Dataclasses look up their module by name while it is executed.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
