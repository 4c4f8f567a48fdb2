"""The application: agents, a model and a store as one ASGI application.

    board = Callboard([Agent("clerk", skills=[…])], model=OpenAICompatible("http://127.0.0.1:11434/v1", model="qwen3"))
    app = board.asgi()

Any ASGI server can run it, and other applications can mount it under a prefix. It opens and closes
with the server's lifespan. `callboard serve` does this with the environment's settings.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from callboard._application.declarations import (
    check_authenticate,
    check_observers,
    check_settings,
    check_store,
    list_agents,
)
from callboard.agents import AgentLike
from callboard.agents.declarations import check_model
from callboard.agents.registry import Registry
from callboard.models import ChatModel, ScriptedModel
from callboard.observers import Observer
from callboard.redaction import Redaction
from callboard.settings import Settings

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import BaseRoute

    from callboard._application.application import Application
    from callboard.http.auth import Authenticate
    from callboard.storage import Store


class Callboard:
    """The declaration of an application: agents, model, store and access. `asgi` makes the application.

    Args:
        agents: The agents; their ids must differ.
        model: The model of agents without one of their own. Default: a script that explains how to connect a model.
        store: The database for chats, memories and other data, opened and closed by the application. Default: the
            database of the settings. None: the memory of the process.
        authenticate: Returns the caller of a request, for example `api_key("…")`. None: every request is accepted.
        routes: More routes, as in Starlette. `authenticate` guards them too.
        middleware: Middleware, as in Starlette, behind `authenticate`.
        lifespan: A lifespan, as in Starlette, entered after the application has opened.
        observers: Functions that are called with the events of runs, see `callboard.observers`.
        settings: Limits, times and addresses. Default: those of the environment.
        redaction: The secrets that the log leaves out, to which the application adds its own.

    Raises `AgentError` for a wrong agent or model and for two agents with one id, and `SettingsError` for any other
    wrong argument. Each message says how to correct it.
    """

    def __init__(
        self,
        agents: Sequence[AgentLike] = (),
        *,
        model: ChatModel | None = None,
        store: "Store | EllipsisType | None" = ...,
        authenticate: "Authenticate | None" = None,
        routes: "Sequence[BaseRoute]" = (),
        middleware: "Sequence[Middleware]" = (),
        lifespan: "Callable[[Starlette], AbstractAsyncContextManager[Mapping[str, Any] | None]] | None" = None,
        observers: Sequence[Observer] = (),
        settings: Settings | None = None,
        redaction: Redaction | None = None,
    ) -> None:
        check_model(model, "The application")
        check_authenticate(authenticate)
        check_store(store)
        check_settings(settings)
        check_observers(observers)
        self.agents = Registry(list_agents(agents))
        self.settings = settings or Settings()
        self.model = model or ScriptedModel()
        self.store = store
        self.authenticate = authenticate
        self.routes = tuple(routes)
        self.middleware = tuple(middleware)
        self.lifespan = lifespan
        self.observers = tuple(observers)
        self.redaction = redaction or Redaction()
        self.redaction.add(
            *self.settings.secrets, *getattr(authenticate, "secrets", ()), *getattr(model, "secrets", ())
        )

    def asgi(self) -> "Application":
        """Return a new application, which opens the store and the agents when it is started; runs are not shared."""
        # A file of agents that declares a board needs neither the web server nor the database.
        from callboard._application.application import Application

        return Application(self)
