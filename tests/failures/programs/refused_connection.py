# reason: network-error
"""The server with the data does not answer."""

import urllib.request

urllib.request.urlopen("http://127.0.0.1:9/data.tar", timeout=5)
