"""The agents that every server has; those that need a service come with its settings."""

from callboard.agents.agent import Agent
from callboard.agents.demo import demo_agent
from callboard.agents.loading import register
from callboard.skills import MEDIA, MEDIA_INFO, TRIAGE

register(demo_agent())
register(Agent("assistant", "Talks with the model that CALLBOARD_MODEL names.", name="Assistant"))
register(Agent("naked", "The bare model, with no prompt and no tools.", name="Model"))
register(
    Agent(
        "media",
        "Finds movies and series, and requests them through Seerr.",
        (MEDIA_INFO, MEDIA, TRIAGE),
        name="Media",
        requires=("seerr_url", "seerr_api_key"),
    )
)
