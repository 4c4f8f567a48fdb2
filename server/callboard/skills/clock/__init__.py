"""The `time` skill: the time anywhere, dates, and what lies between them."""

from callboard.skills.clock.clock import TIME

__all__ = ["TIME"]
