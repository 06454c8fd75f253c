"""How a manager is reached over TCP: in the clear within its machine, else by TLS, its own or a proxy's."""

from __future__ import annotations

import hashlib
import ipaddress
import re
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

SHA256 = "sha256:"
CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
"""The first of a file is the manager's own; those of authorities follow."""


@dataclass(frozen=True, slots=True)
class Front:
    """What stands before a manager's TCP socket."""

    certificate: Path | None = None
    key: Path | None = None
    proxy: str | None = None
    """Where browsers and clients reach it: the address of a reverse proxy that speaks TLS."""

    @property
    def is_encrypted(self) -> bool:
        return self.certificate is not None or self.proxy is not None

    def url(self, sock: socket.socket) -> str:
        """Where the manager itself answers."""
        return url_of(sock, "http" if self.certificate is None else "https")

    def page_url(self, sock: socket.socket) -> str:
        """Where browsers find it."""
        return self.proxy or self.url(sock)

    def names(self) -> set[str]:
        """Host names that it has besides its own: the proxy's, and those that its certificate is for."""
        named = set() if self.proxy is None else {urlsplit(self.proxy).hostname or ""}
        return named | self._certificate_names()

    def fingerprint(self) -> str | None:
        """Of its certificate, for people to compare; None where it has none of its own."""
        first = self._first()
        return None if first is None else fingerprint(ssl.PEM_cert_to_DER_cert(first))

    def _first(self) -> str | None:
        if self.certificate is None:
            return None
        found = CERTIFICATE.search(self.certificate.read_text())
        return None if found is None else found[0]

    def _certificate_names(self) -> set[str]:
        """Its alternative names, as a client sees them: in a handshake that never leaves this process.

        None of a certificate that is not valid now.
        """
        first = self._first()
        if first is None:
            return set()
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving.load_cert_chain(self.certificate or "", self.key)
        asking = ssl.create_default_context(cadata=first)
        asking.check_hostname = False
        asking.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = asking.wrap_bio(back, there)
        server = serving.wrap_bio(there, back, server_side=True)
        try:
            for end in (client, server, client):
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
        except ssl.SSLError:
            return set()
        said = client.getpeercert() or {}
        return {str(each[1]) for each in said.get("subjectAltName", ())}

    def check(self) -> None:
        """OSError or ValueError where certificate and key cannot be used."""
        if self.certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self.certificate, self.key)


def fingerprint(certificate: bytes) -> str:
    """The SHA-256 of a certificate in DER, as `openssl x509 -fingerprint -sha256` has it."""
    return SHA256 + hashlib.sha256(certificate).hexdigest()


PLAIN = Front()
"""Nothing: for sockets that only this machine reaches."""


def url_of(sock: socket.socket, scheme: str = "http") -> str:
    """The address of a socket; one that listens everywhere is named by its machine."""
    host, port = sock.getsockname()[:2]
    if ipaddress.ip_address(str(host).partition("%")[0]).is_unspecified:
        host = socket.gethostname()
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
