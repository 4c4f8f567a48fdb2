"""Movies and series: a skill that manages a media library through Seerr (Overseerr, Jellyseerr)."""

from callboard.skills.media.skill import Seerr

__all__ = ["Seerr"]
