import pytest


@pytest.fixture
def stride(request: pytest.FixtureRequest) -> int:
    """Return 1 in a thorough run; otherwise more: of a row of cases a test tries each `stride`-th."""
    return 1 if request.config.getoption("thorough") else 7
