"""A server in a process of its own: waited for, explained, stopped with its children."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from service import Service, ServiceError, answers, free_port

SERVE = "import sys, http.server; http.server.test(http.server.SimpleHTTPRequestHandler, port={port}, bind='127.0.0.1')"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Makes a service out of Python code in which `{port}` is its port."""
    made: list[Service] = []

    def make(code: str) -> Service:
        port = free_port()
        command = [sys.executable, "-u", "-c", code.replace("{port}", str(port))]
        health = f"http://127.0.0.1:{port}/"
        made.append(Service("The thing", command, {}, tmp_path / "logs" / "thing.log", health))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def test_only_the_owner_can_read_the_log_even_if_it_existed(service: Callable[..., Service]) -> None:
    before = os.umask(0)
    try:
        thing = service(SERVE)
        for _ in range(2):
            thing.start()
            thing.stop()
            assert thing.log.stat().st_mode & 0o777 == 0o600
            thing.log.chmod(0o666)
    finally:
        os.umask(before)


def test_a_service_that_ends_early_is_shown_with_the_end_of_its_log(service: Callable[..., Service]) -> None:
    thing = service("import sys; [print('line', n) for n in range(100)]; sys.exit(3)")
    thing.start()
    with pytest.raises(ServiceError) as failure:
        thing.wait_until_healthy(30)
    assert "The thing ended with exit code 3 before it was ready." in str(failure.value)
    assert "line 99" in str(failure.value)
    assert "line 79" not in str(failure.value)


def test_the_children_of_a_service_end_with_it(service: Callable[..., Service]) -> None:
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SERVE!r}])"
    thing = service(child)
    thing.start()
    thing.wait_until_healthy(30)
    assert answers(thing.health)
    assert thing.exit_code is None
    thing.stop()
    assert not answers(thing.health)
    assert thing.exit_code is not None


def test_a_service_that_ignores_sigterm_is_ended_by_force(
    service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.STOP_SECONDS", 0.2)
    thing = service(f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SERVE}")
    thing.start()
    thing.wait_until_healthy(30)
    thing.stop()
    assert thing.exit_code == -9
