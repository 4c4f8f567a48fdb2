"""The home: skills that read and control a house through Home Assistant.

`HomeAssistant` uses its REST and WebSocket APIs. `HomeAssistantIntents` offers Home Assistant's own tools for
assistants.
"""
