"""Movies and series: a skill that manages a media library through Seerr (Overseerr, Jellyseerr)."""
