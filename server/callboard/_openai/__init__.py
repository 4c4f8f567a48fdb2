"""OpenAI's API for agents: chat completions and responses.

A request becomes a `RunRequest`, and the events of the run become an answer in OpenAI's form. The agent's tools run on
the server; the client may see their calls. Functions that the client offers are run by the client.
"""

from callboard._openai.routes import ROUTES

__all__ = ["ROUTES"]
