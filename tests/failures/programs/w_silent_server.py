# reason: network-error
import socket

listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname(), timeout=0.3)
client.recv(10)
