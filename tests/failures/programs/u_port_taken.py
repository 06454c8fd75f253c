# reason: address-in-use
import socket

first = socket.socket()
first.bind(("127.0.0.1", 0))
first.listen()
second = socket.socket()
second.bind(first.getsockname())
