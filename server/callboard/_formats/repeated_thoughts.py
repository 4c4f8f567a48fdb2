"""Shows a thought once that an endpoint sends twice: in the text, and in a field beside it.

MiniMax and some proxies do that: https://github.com/can1357/oh-my-pi/issues/2434. White space may differ.
"""

from callboard.models.chunks import skip_solid, squeeze


class RepeatedThoughts:
    """Leaves out a thought of an answer's text that a field repeats, and the reverse. `add` takes each piece."""

    def __init__(self) -> None:
        self._said = ""
        """The thought so far, without white space."""
        self._places = {"text": 0, "field": 0}
        """How much of it each source has sent."""
        self._repeated = {"text": "", "field": ""}
        """What each source has only repeated since its last piece that was shown."""
        self._are_two = False
        """The sources differ: both are shown."""

    def add(self, piece: str, source: str) -> str:
        """Return the part of the piece that the other source has not sent. `source` is "text" or "field"."""
        place = self._places[source]
        solid = squeeze(piece)
        known = self._said[place : place + len(solid)]
        if self._are_two or not solid.startswith(known):
            self._are_two = True
            return self._repeated.pop(source, "") + piece
        self._said += solid[len(known) :]
        self._places[source] += len(solid)
        if len(known) == len(solid) and (known or self._repeated[source]):
            self._repeated[source] += piece
            return ""
        self._repeated[source] = ""
        return skip_solid(piece, len(known)) if known else piece
