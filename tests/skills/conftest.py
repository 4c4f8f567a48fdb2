import pytest

from callboard.calls import Services
from callboard.models import ScriptedModel
from callboard.storage import Store


@pytest.fixture
def services(store: Store) -> Services:
    """The services that a running application gives to skills and tools."""
    return Services(store, ScriptedModel())
