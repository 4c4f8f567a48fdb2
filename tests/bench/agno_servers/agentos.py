"""The agent behind AgentOS, as its documentation serves one, but for what would phone home: `python -m …agentos`."""

import os

import uvicorn
from agno.db.sqlite import SqliteDb
from agno.os import AgentOS

from tests.bench.agno_servers.definition import story_agent

if __name__ == "__main__":
    # In a database after each round of calls, which is the most that it offers; or nowhere.
    path = os.environ.get("BENCH_DATABASE")
    database = SqliteDb(db_file=path) if path else None
    agent = story_agent(os.environ["BENCH_MODEL"])
    app = AgentOS(id="bench", agents=[agent], db=database, checkpoint="tool-batch", telemetry=False).get_app()
    # As Callboard runs uvicorn: neither is to pay for a log.
    uvicorn.run(app, port=int(os.environ["BENCH_PORT"]), log_config=None, access_log=False)
