"""The authorities whose certificates an endpoint of models may show."""

import os
import ssl
from functools import cache

import httpx


@cache
def tls_context() -> ssl.SSLContext:
    """Return the authorities of SSL_CERT_FILE or SSL_CERT_DIR; if neither is set, certifi's and the system's.

    They are loaded once, which takes some 50 ms.
    """
    context = httpx.create_ssl_context()
    if not (os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")):
        context.load_default_certs()
    return context
