"""The web's skill, and certificates for the tests of the web's tools."""

import ssl
from collections.abc import Callable
from typing import Any

import pytest
import trustme

from callboard.skills.web.skill import WebSearch, WebSettings
from callboard.storage import Store
from tests.skills.calling import ToolRunner

MakeWeb = Callable[..., ToolRunner[WebSearch]]


@pytest.fixture
def web(store: Store) -> MakeWeb:
    def make(last_source: int = -1, **settings: Any) -> ToolRunner[WebSearch]:
        given = WebSettings(**settings)
        return ToolRunner(WebSearch(given.engines(), allowed_hosts=given.allowed_hosts), store, last_source)

    return make


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server_tls(authority: trustme.CA) -> Callable[..., ssl.SSLContext]:
    """TLS of a server with a certificate for these names."""

    def make(*names: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(*names).configure_cert(context)
        return context

    return make


@pytest.fixture
def client_tls(authority: trustme.CA) -> ssl.SSLContext:
    """The TLS context of a client that trusts only the test's authority."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context
