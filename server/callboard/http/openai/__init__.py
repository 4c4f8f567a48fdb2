"""The agents for clients that speak OpenAI's API: chat completions and responses.

A request becomes a `RunRequest`, the run's events become what OpenAI's API would say of
them. Tools run on the server: a client is told of calls and never asked to run one.
"""

from callboard.http.openai.routes import ROUTES

__all__ = ["ROUTES"]
