# reason: network-error
import http.server
import threading
import urllib.request


class Busy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(503)

    def log_message(self, *args):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Busy)
threading.Thread(target=server.serve_forever, daemon=True).start()
urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/weights.bin")
