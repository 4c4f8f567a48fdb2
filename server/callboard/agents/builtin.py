"""The agents that every server has; those that need a service come with its settings."""

from callboard.agents.agent import Agent
from callboard.agents.demo import demo_agent
from callboard.agents.loading import register

register(demo_agent())
register(Agent("assistant", "Talks with the model that CALLBOARD_MODEL names.", name="Assistant"))
register(Agent("naked", "The bare model, with no prompt and no tools.", name="Model"))
