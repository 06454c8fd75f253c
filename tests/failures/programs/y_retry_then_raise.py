# reason: network-error
import socket
import time

last = None
for attempt in range(3):
    try:
        socket.create_connection(("127.0.0.1", 9), timeout=1)
    except OSError as error:
        print(f"attempt {attempt + 1}/3 failed: {error}; retrying")
        last = error
        time.sleep(0.05)
raise last
