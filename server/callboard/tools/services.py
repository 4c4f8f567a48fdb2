"""What the server lends to the tools that come with it: its settings, its database, its model."""

from dataclasses import dataclass, field

from callboard.history import Store
from callboard.models import ChatModel
from callboard.settings import Settings


@dataclass(frozen=True, slots=True)
class Services:
    """For built-in tools, by `ToolContext.services`. `model` is the server's default model."""

    settings: Settings = field(repr=False)
    store: Store
    model: ChatModel
