"""The certificate of a manager on another machine: what it is, and whether this system knows it."""

from __future__ import annotations

import socket
import ssl
from urllib.parse import urlsplit

from trainmaster.client.connection import HTTPS_PORT, any_certificate, fingerprint_of
from trainmaster.errors import Failed, system_reason

PATIENCE_S = 10.0


def seen_at(url: str) -> str:
    """The fingerprint of the certificate there; nothing else is sent or asked."""
    try:
        return _handshake(url, any_certificate())
    except OSError as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else system_reason(error)
        raise Failed(f"{url} does not answer with a certificate: {reason}.") from None


def is_vouched_for(url: str) -> bool:
    """Whether an authority of this system says that it belongs to this host."""
    try:
        _handshake(url, ssl.create_default_context())
    except OSError:
        return False
    return True


def _handshake(url: str, context: ssl.SSLContext) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    with (
        socket.create_connection((host, parts.port or HTTPS_PORT), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        return fingerprint_of(secured)
