"""A resolver with scripted answers."""

import socket
from collections.abc import Mapping, Sequence


class Names:
    """A resolver that returns the next answer for a name each time, and repeats the last. `asked` are the queries."""

    def __init__(self, answers: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self.asked: list[str] = []
        self._answers = {name: list(given) for name, given in answers.items()}

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self._answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        given = self._answers[host]
        return given.pop(0) if len(given) > 1 else given[0]
