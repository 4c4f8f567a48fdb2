"""scripts/up, run twice: the second time nothing is installed and the sign-in is the same."""

from __future__ import annotations

import pytest

from service import port_is_free
from tests.e2e.up import Up, found

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300, func_only=True)]


async def test_a_second_run_installs_nothing_and_keeps_the_sign_in(up: Up) -> None:
    first = up.start()
    assert up.press_ctrl_c() == 0
    second = up.start()
    assert found(second, r"password +(\S+)") == found(first, r"password +(\S+)")
    assert "Installing Open WebUI" not in second
    assert "Installing the Callboard server" not in second
    assert up.press_ctrl_c() == 0
    assert all(port_is_free("127.0.0.1", port) for port in up.ports.values())
