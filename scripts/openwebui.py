"""Installs a real Open WebUI from PyPI, starts it with its own data folder, and signs in to it.

Each version has a virtual environment in the user's cache folder, because its pinned dependencies conflict with the
server's. `up` and the end-to-end tests use this module. Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from service import Service

VERSION = "0.12.4"
PYTHONS = ((3, 12), (3, 11))
# Later versions of torch have several GB; this one has a small CPU build, which pip uses if its index has it.
TORCH = "torch==2.13.0"
START_SECONDS = 300.0
CALL_SECONDS = 60.0

KNOWLEDGE = (
    "Knowledge and attached files are given to the model whole: searching in them needs an embedding model "
    "(Admin Panel, Settings, Documents)."
)
"""A note for the user about `_KNOWLEDGE`."""

# Open WebUI would download its embedding model from Hugging Face at its start; without a model it uses files as a
# whole. Its OpenAI engine is never used then, but keeps it from loading torch.
_KNOWLEDGE = {"BYPASS_EMBEDDING_AND_RETRIEVAL": "true", "RAG_EMBEDDING_ENGINE": "openai"}


Say = Callable[[str], None]


class OpenWebUIError(Exception):
    """Open WebUI cannot be installed or signed in to; the message says what to do."""


# ---------------------------------------------------------------------------------------------- install


def installed(version: str = VERSION) -> Path | None:
    """Return the virtual environment with this version of Open WebUI; None if it is missing or incomplete."""
    home = _home(version)
    works = _runs([str(home / "bin" / "python"), "-c", ""]) and _command(home).exists()
    return home if works and not _begun(home).exists() else None


def install(version: str = VERSION, say: Say = print) -> Path:
    """Return the virtual environment with this version of Open WebUI; make it first if it is missing.

    Several processes may call it at once, and it may be killed: a marker next to the folder shows that an installation
    has not finished, and the next one then starts from the beginning.
    """
    home = _home(version)
    with _lock(home.with_name(f"{home.name}.lock"), say):
        if found := installed(version):
            return found
        python = find_python(say)
        say(
            f"Downloading Open WebUI {version} from PyPI into {home}: about 3 GB on disk and 2 to 4 minutes "
            "(more if pip finds no CPU build of torch). This happens once."
        )
        _begun(home).touch()
        shutil.rmtree(home, ignore_errors=True)
        _build(home, python, version)
        _begun(home).unlink()
    return home


def find_python(say: Say = print) -> str:
    """Return a Python that Open WebUI supports: this one, one on the PATH, or one that uv has or downloads."""
    candidates = [sys.executable, *(f"python{major}.{minor}" for major, minor in PYTHONS)]
    for candidate in candidates:
        if _fits(candidate):
            return candidate
    if shutil.which("uv"):
        wanted = "{}.{}".format(*PYTHONS[0])
        say(f"Open WebUI needs Python 3.11 or 3.12; asking uv for {wanted}.")
        subprocess.run(["uv", "python", "install", wanted], check=False)
        found = subprocess.run(["uv", "python", "find", wanted], check=False, capture_output=True, text=True)
        if _fits(found.stdout.strip()):
            return found.stdout.strip()
    raise OpenWebUIError(
        f"Open WebUI runs on Python 3.11 and 3.12 only; this is {sys.version_info.major}.{sys.version_info.minor} and "
        "neither python3.12, python3.11 nor uv was found. Install one of them (uv fetches a fitting Python by "
        "itself), or set OPEN_WEBUI_URL to an Open WebUI that runs already."
    )


def _fits(python: str) -> bool:
    """Return whether a command is a Python of a supported version that can make virtual environments."""
    test = f"import sys, ensurepip, venv; sys.exit(sys.version_info[:2] not in {PYTHONS!r})"
    return bool(python) and _runs([python, "-c", test])


def _runs(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def _build(home: Path, python: str, version: str) -> None:
    pip = (str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    try:
        for command in ((python, "-m", "venv", str(home)), (*pip, TORCH), (*pip, f"open-webui=={version}")):
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as failure:
        raise OpenWebUIError(f"Installing Open WebUI {version} failed; see the messages above. {failure}") from None


@contextlib.contextmanager
def _lock(path: Path, say: Say) -> Iterator[None]:
    """Hold the lock until the block ends. The system releases it when the process ends, so it is never stale."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Waiting for another process that installs the same Open WebUI.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _home(version: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "callboard" / f"open-webui-{version}"


def _begun(home: Path) -> Path:
    return home.with_name(f"{home.name}.installing")


def _command(home: Path) -> Path:
    return home / "bin" / "open-webui"


# ------------------------------------------------------------------------------------------------ start


def service(home: Path, data: Path, port: int, secret_key: str) -> Service:
    """Return the Open WebUI of the environment `home`, not started yet, with its data in the folder `data`."""
    data.mkdir(parents=True, exist_ok=True)
    return Service(
        name="Open WebUI",
        command=[str(_command(home)), "serve", "--host", "127.0.0.1", "--port", str(port)],
        environment=_environment(data, secret_key),
        log=data / "open-webui.log",
        health=f"http://127.0.0.1:{port}/health",
    )


def _environment(data: Path, secret_key: str) -> dict[str, str]:
    # These variables of the shell are for other programs, and would select another database or other packages.
    foreign = ("DATABASE_URL", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "WEBUI_AUTH", "PORT")
    inherited = {name: value for name, value in os.environ.items() if name not in foreign}
    # A user who sets one of them has an embedding model.
    knowledge = {} if any(name in inherited for name in _KNOWLEDGE) else _KNOWLEDGE
    return (
        inherited
        | knowledge
        | {
            "DATA_DIR": str(data),
            "WEBUI_SECRET_KEY": secret_key,
            # Nothing is downloaded at run time: no embedding models, no check for updates, no telemetry.
            "OFFLINE_MODE": "true",
            "HF_HUB_OFFLINE": "1",
            "ENABLE_VERSION_UPDATE_CHECK": "false",
            "ANONYMIZED_TELEMETRY": "false",
            "DO_NOT_TRACK": "true",
            "SCARF_NO_ANALYTICS": "true",
            # The pipe is the only source of models, because unreachable ones delay the model list.
            "ENABLE_OLLAMA_API": "false",
            "ENABLE_OPENAI_API": "false",
        }
    )


# ---------------------------------------------------------------------------------------------- sign in


def first_admin(url: str, email: str, password: str) -> str:
    """Return a token of the admin, who is signed up first if the Open WebUI at `url` has no users."""
    status, answer = _post(f"{url}/api/v1/auths/signin", {"email": email, "password": password})
    if status != 200:
        body = {"name": "Admin", "email": email, "password": password}
        refused = answer
        status, answer = _post(f"{url}/api/v1/auths/signup", body)
        if status != 200:
            raise OpenWebUIError(
                f"Open WebUI refused both the sign-in ({refused}) and the sign-up ({answer}) of {email}. If the "
                "password was changed there, set OPEN_WEBUI_EMAIL and OPEN_WEBUI_PASSWORD to an admin's."
            )
    if not isinstance(answer, dict) or not isinstance(answer.get("token"), str):
        raise OpenWebUIError(f"Open WebUI answered the sign-in of {email} without a token.")
    return str(answer["token"])


def _post(url: str, body: dict[str, str]) -> tuple[int, object]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=CALL_SECONDS) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refusal:
        return refusal.code, _detail(refusal.read())


def _detail(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")
