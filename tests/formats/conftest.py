import pytest


@pytest.fixture
def stride(request: pytest.FixtureRequest) -> int:
    """Return the step between the cases of a row that a test tries: 1 in a thorough run, otherwise more."""
    return 1 if request.config.getoption("thorough") else 7
