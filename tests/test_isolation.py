"""The tests see nothing of the user but the cache folder."""

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
VARIABLES = (
    "HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "CALLBOARD_API_KEY",
    "OPENAI_BASE_URL",
    "OTEL_SERVICE_NAME",
    "http_proxy",
)
SHOW = "import json, os, tests.isolation; print(json.dumps(dict(os.environ)))"


def test_the_environment_of_the_tests_names_only_the_cache_of_the_user(tmp_path: Path) -> None:
    users = {name: str(tmp_path) for name in VARIABLES}
    ended = subprocess.run([sys.executable, "-c", SHOW], cwd=ROOT, env=users, capture_output=True, check=True)
    seen = json.loads(ended.stdout)
    assert [name for name, value in seen.items() if str(tmp_path) in value] == ["XDG_CACHE_HOME"]
    assert Path.home() == Path.cwd() != Path(pwd.getpwuid(os.getuid()).pw_dir)
