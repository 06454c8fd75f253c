"""Delivers one message: by mail, or by posting JSON. Blocking; OSError or Undelivered say why it failed."""

from __future__ import annotations

import json
import smtplib
import socket
import ssl
from email.message import EmailMessage
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from threading import Timer
from urllib.parse import urlsplit

from trainmaster import __version__
from trainmaster.config.notifications import Channel, MailServer, NotificationSettings, Target
from trainmaster.daemon.outbox import Message

PATIENCE_S = 10.0
TAKEN = range(200, 300)


class Undelivered(Exception):
    """The other side did not take it: one sentence."""


def deliver(message: Message, target: Target, settings: NotificationSettings) -> None:
    """Send it; what goes wrong is an Undelivered."""
    try:
        if target.channel is Channel.MAIL:
            if settings.mail is None:
                raise Undelivered("no mail server is named any more")
            _send_mail(message, target.address, settings.mail)
        else:
            body = message.body
            if target.channel is Channel.SLACK:
                body = {"text": f"{message.subject}\n{message.text}".strip()}
            _post(target.address, json.dumps(body).encode())
    except (OSError, smtplib.SMTPException, HTTPException, ValueError) as error:
        raise Undelivered(f"{type(error).__name__}: {error}"[:200]) from None


def _post(url: str, body: bytes) -> None:
    """No redirect is followed: the address that was allowed is the one that gets it."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=PATIENCE_S)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Content-Type": "application/json", "User-Agent": f"trainmaster/{__version__}"}
    connection.connect()
    # A server that sends a little every few seconds would keep us for ever: this ends the connection.
    patience = Timer(PATIENCE_S, socket.socket.shutdown, (connection.sock, socket.SHUT_RDWR))
    patience.start()
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        if answer.status not in TAKEN:
            raise Undelivered(f"it answered {answer.status} {answer.reason}"[:200])
    finally:
        patience.cancel()
        connection.close()


def _send_mail(message: Message, address: str, server: MailServer) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = server.sender, address, message.subject
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.text)
    secure = ssl.create_default_context()
    session: smtplib.SMTP
    if server.security == "tls":
        session = smtplib.SMTP_SSL(server.host, server.port, timeout=PATIENCE_S, context=secure)
    else:
        session = smtplib.SMTP(server.host, server.port, timeout=PATIENCE_S)
    with session:
        if server.security == "starttls":
            session.starttls(context=secure)
        if server.user is not None and server.password_file is not None:
            session.login(server.user, Path(server.password_file).read_text("utf-8").strip())
        session.send_message(mail)
