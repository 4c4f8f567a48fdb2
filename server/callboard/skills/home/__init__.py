"""The house: what an agent can know of it and do in it, by Home Assistant.

`HOME` works over Home Assistant's REST and WebSocket API, `home_if_set_up()` is the same where the settings name one,
and `home_intents()` adds its own tools for assistants.
"""

from callboard.skills.home.intents import home_intents
from callboard.skills.home.skill import HOME, home_if_set_up

__all__ = ["HOME", "home_if_set_up", "home_intents"]
