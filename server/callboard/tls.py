"""The TLS certificates that are trusted for model endpoints, search engines and web pages."""

import os
import ssl
from functools import cache

import httpx


@cache
def tls_context() -> ssl.SSLContext:
    """Return a context that trusts SSL_CERT_FILE or SSL_CERT_DIR, or certifi and the system if neither is set.

    Cached, because loading the certificates takes about 50 ms.
    """
    context = httpx.create_ssl_context()
    if not (os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")):
        context.load_default_certs()
    return context
