"""The agents of the tests with Open WebUI's own tools; they have no tools themselves."""

from callboard import Agent, register

register(Agent("keeper", "Uses what is attached in Open WebUI."))
register(Agent("collector", "Uses all of Open WebUI's tools.", openwebui_tools="all"))
register(Agent("hermit", "Uses none of Open WebUI's tools.", openwebui_tools="none"))
