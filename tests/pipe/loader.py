"""Loads the pipe the way Open WebUI does: text replacement on the source, then exec in a fresh module.

After open_webui/utils/plugin.py (0.12.4), `replace_imports` and `load_function_module_by_id`.
"""

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from callboard.openwebui.details_parser import translate
from callboard_protocol import ChatMessage

FOLDER = Path(__file__).parents[2] / "pipe"
REPLACEMENTS = {f"from {name}": f"from open_webui.{name}" for name in ("utils", "apps", "main", "config")}


def load_function(name: str) -> Any:
    source = (FOLDER / name).read_text(encoding="utf-8")
    for old, new in REPLACEMENTS.items():
        source = source.replace(old, new)
    module = types.ModuleType("function_callboard_under_test")
    sys.modules[module.__name__] = module
    try:
        module.__dict__["__file__"] = "/tmp/gone"
        exec(source, module.__dict__)
    finally:
        # Open WebUI forgets the module too: nothing in it may look itself up later.
        sys.modules.pop(module.__name__)
    return module


PIPE = load_function("callboard_pipe.py")


def provide_open_webui(monkeypatch: pytest.MonkeyPatch, modules: dict[str, dict[str, Any]]) -> None:
    """Put these modules of Open WebUI, with these members, in place for the functions' own imports."""
    for path, members in modules.items():
        package = types.ModuleType("open_webui")
        names = ["open_webui", *path.split(".")]
        for depth in range(1, len(names) + 1):
            name = ".".join(names[:depth])
            module = sys.modules.get(name) or types.ModuleType(name)
            monkeypatch.setitem(sys.modules, name, module)
            setattr(package, names[depth - 1], module)
            package = module
        vars(package).update(members)


def read_next_turn(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages that the model reads on the next turn: the server's reading of Open WebUI's messages."""
    read = translate([ChatMessage.model_validate(message) for message in messages])
    return [message.to_openai() for message in read]
