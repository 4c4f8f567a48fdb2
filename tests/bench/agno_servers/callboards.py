"""The file that `CALLBOARD_AGENTS` names: the agent behind Callboard."""

import os

from callboard import register
from callboard.frameworks.agno import from_agno
from tests.bench.agno_servers.definition import story_agent

register(from_agno(story_agent(os.environ["BENCH_MODEL"])))
