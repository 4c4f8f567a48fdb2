"""For tests of agents, tools and applications: a model whose answers are written down, a server to talk to.

    def test_adds(tmp_path):
        model = FakeModel([Call("add", a=1, b=2)], "It is 3.")
        board = Callboard([Agent("clerk", skills=[arithmetic])], model=model, settings=Settings(data_dir=tmp_path))
        with client(board) as callboard:
            run = callboard.run("What is 1 + 2?")
        assert run.text == "It is 3."
        assert run.results == {"add": "3"}

Everything is real but the model: the server listens on a port of this machine and stores what it stores.
"""

from callboard.testing.fake_model import Call, FakeModel
from callboard.testing.serving import Client, Run, RunCall, client, listening

__all__ = ["Call", "Client", "FakeModel", "Run", "RunCall", "client", "listening"]
