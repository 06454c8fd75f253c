"""Serves the dashboard: `python -m trainmaster.api.web --url URL (--socket PATH | --port PORT)`."""

from __future__ import annotations

import argparse

import uvicorn

from trainmaster.api.web.site import site
from trainmaster.api.web.viewer import Manager


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m trainmaster.api.web", description=__doc__)
    parser.add_argument("--url", default="http://localhost", help="Where the manager answers.")
    parser.add_argument("--manager-socket", help="The manager's Unix socket, instead of its URL.")
    parser.add_argument("--socket", help="Unix socket to serve the pages on.")
    parser.add_argument(
        "--port", type=int, default=8480, help="Port of this machine to serve them on."
    )
    said = parser.parse_args()
    app = site(Manager(said.url, said.manager_socket))
    uvicorn.run(app, uds=said.socket, host="127.0.0.1", port=said.port, log_level="warning")


if __name__ == "__main__":
    main()
