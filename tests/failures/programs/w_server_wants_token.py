# reason: authentication-error
import http.server
import threading
import urllib.request


class Closed(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(401)

    def log_message(self, *args):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Closed)
threading.Thread(target=server.serve_forever, daemon=True).start()
urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/private/model.bin")
