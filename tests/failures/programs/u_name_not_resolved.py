# reason: network-error
import socket

try:
    socket.create_connection(("tracker.invalid", 443), timeout=3)
except OSError as error:
    raise RuntimeError("cannot reach the tracker") from error
