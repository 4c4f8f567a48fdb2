"""A gate at which a tool of a server's process waits until the test lets it pass."""

import asyncio
import contextlib
import socket
from pathlib import Path

FILE = "gate"
"""Name of the file that holds the port of a closed gate; without the file the gate is open."""
GREETING = b"a tool"
"""What a tool sends first: clients of an earlier server may try the same port again."""
PATIENCE_SECONDS = 60.0


class Gate:
    """The test's side of a gate, closed at first. Tools look for it in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / FILE
        self.close()

    def close(self) -> None:
        """Hold the tools that come from now on."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_SECONDS)
        self._file.write_text(str(self._listener.getsockname()[1]))

    def open(self) -> None:
        """Let all tools pass, those that wait and those that come later."""
        self._file.unlink(missing_ok=True)
        # The system resets the connections that were not accepted.
        self._listener.close()

    def wait_for_one(self) -> socket.socket:
        """Wait until a tool is at the gate; it passes when the connection is closed. Raises `TimeoutError`."""
        while True:
            connection, _ = self._listener.accept()
            if connection.recv(len(GREETING), socket.MSG_WAITALL) == GREETING:
                return connection
            connection.close()

    def pass_one(self) -> None:
        """Wait until a tool is at the gate and let it pass; raises `TimeoutError`."""
        self.wait_for_one().close()


async def wait_at_gate(folder: Path) -> None:
    """Return once the gate of that folder is open or has let this caller pass."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", int((folder / FILE).read_text()))
    except (FileNotFoundError, ConnectionError):
        return
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(GREETING)
            await reader.read()
    finally:
        writer.close()
