"""The application: agents, a model and a store as one ASGI application.

    board = Callboard([Agent("clerk", skills=[…])], model=OpenAICompatible("http://127.0.0.1:11434/v1", model="qwen3"))
    app = board.asgi()

Any ASGI server runs it, and other applications mount it below a prefix: it opens with the server, or else with the
first request, and closes with it. `callboard serve` is this with the environment's settings.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from callboard._agents import AgentLike, Registry
from callboard._agents.declarations import check_model
from callboard._application.declarations import (
    check_authenticate,
    check_observers,
    check_settings,
    check_store,
    list_agents,
)
from callboard._redaction import Redaction
from callboard._settings import Settings
from callboard.models import ChatModel, ScriptedModel
from callboard.observers import Observer

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import BaseRoute

    from callboard._application.application import Application
    from callboard._http.auth import Authenticate
    from callboard.storage import Store


class Callboard:
    """Agents, what they work with, and who may ask them; `asgi` makes an application of it.

    `model` is that of every agent without one of its own; without it a script says how to connect one. `store` is
    where chats, memories and the like are kept, opened and closed by the application: without it the database of the
    settings, with None the memory of the process. `authenticate` knows who asks (`api_key("…")` does by a key), None
    lets in whoever reaches the server. `routes`, `middleware` and `lifespan` are Starlette's, and stand behind
    `authenticate`. `observers` are told what runs do (`callboard.observers`). `settings` are limits, times and
    addresses; where they are not given, the environment's. `redaction` is that of the log, where it has one: what is
    secret is added to it.

    Raises `AgentError` for two agents of one id and for what is no agent or no model, `SettingsError` for wrong
    settings and for any other argument that the application could not work with, each with the fix.
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
        """Return an application that opens what this board names when it is started; each has runs of its own."""
        # A file of agents describes a board and needs neither the web server nor the database that serve it.
        from callboard._application.application import Application

        return Application(self)
