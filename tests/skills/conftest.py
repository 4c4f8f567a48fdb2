import pytest

from callboard.calls import Services
from callboard.models import ScriptedModel
from callboard.storage import Store


@pytest.fixture
def services(store: Store) -> Services:
    """What a running application lends to skills and tools."""
    return Services(store, ScriptedModel())
