"""Importing this module gives the process an environment without the user's folders, settings, keys and proxies.

`tests/conftest.py` imports it first, because some packages read the environment when they are imported. Only downloads
depend on the user: package managers use the user's mirrors and proxy, and the cache folder is the user's.
"""

import os
import re
import tempfile
from pathlib import Path

KEPT = re.compile(
    r"PATH|LD_LIBRARY_PATH|TE?MP(DIR)?|TERM|LANG|LC_.*|CI|(PYTHON|PYENV|PYTEST|PIP|UV|NPM_CONFIG|NODE|SSL_CERT).*"
    r"|(REQUESTS|CURL)_CA_BUNDLE|XDG_CACHE_HOME|OMP_.*|.*BLAS_.*",
    re.IGNORECASE,
)
"""The variables that stay: of the system, of Python, of number libraries, and of package managers."""
LINKED = (".gitconfig", ".npmrc", ".config/pip", ".local/share/uv")
"""The files and folders of git and package managers in the user's home folder, which the empty one links to."""

# The processes of one run share the folder. The process that starts the others removes it.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _users_home = Path.home()
    _home = tempfile.TemporaryDirectory(prefix="callboard-home-")
    for name in LINKED:
        if (_users_home / name).exists():
            link = Path(_home.name, name)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(_users_home / name)
    proxy = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
    for name in [name for name in os.environ if not KEPT.fullmatch(name)]:
        del os.environ[name]
    os.environ["HOME"] = _home.name
    os.environ["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or str(_users_home / ".cache")
    if proxy:
        os.environ |= {"PIP_PROXY": proxy, "NPM_CONFIG_HTTPS_PROXY": proxy}
