"""Tools for tests of agents, tools and applications: a fake model, and a client of a real server.

    def test_adds(tmp_path):
        model = FakeModel([Call("add", a=1, b=2)], "It is 3.")
        board = Callboard([Agent("clerk", skills=[arithmetic])], model=model, settings=Settings(data_dir=tmp_path))
        with client(board) as callboard:
            run = callboard.run("What is 1 + 2?")
        assert run.text == "It is 3."
        assert run.results == {"add": "3"}

Only the model is fake: the server listens on a port of this machine and stores its chats.
"""

from callboard.testing.fake_model import Call, FakeModel
from callboard.testing.serving import Client, EndedRun, RunCall, client

__all__ = ["Call", "Client", "EndedRun", "FakeModel", "RunCall", "client"]
