"""All pages, as one application."""

from __future__ import annotations

from importlib import import_module

from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import ui

from trainmaster.api.icon import ICON
from trainmaster.api.web.api_client import Refused
from trainmaster.api.web.viewer import Manager

PAGES = (
    "overview",
    "jobs",
    "job",
    "submit",
    "nodes",
    "node",
    "queues",
    "users",
    "usage",
    "whatif",
    "lab",
)

PAGE_S = 30.0
"""For a page to be built: with 10,000 GPUs, or on a busy machine, the usual 3 s are few."""
RECONNECT_S = 15.0
"""A browser that comes back so soon goes on where it was."""


def site(manager: Manager) -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    (ui.page.__init__.__kwdefaults__ or {})["response_timeout"] = PAGE_S
    for name in PAGES:
        import_module(f"trainmaster.api.web.pages.{name}").add(manager)
    nicegui_app.config.socket_io_js_transports = ["websocket"]
    nicegui_app.config.vue_config_script += "window.trainmaster?.apply();"
    nicegui_app.on_page_exception(_refusal)
    ui.run_with(
        app,
        title="Trainmaster",
        favicon=ICON,
        dark=None,  # as the reader's system is
        reconnect_timeout=RECONNECT_S,
        show_welcome_message=False,
    )
    return app


def _refusal(error: Exception) -> None:
    """Instead of a page that cannot be built: one sentence."""
    said = (
        str(error) if isinstance(error, Refused) else "This page could not be made: see pages.log."
    )
    ui.page_title("Trainmaster")
    with ui.column().classes("mx-auto mt-16 gap-4"):
        ui.label(said)
        ui.link("Overview", "/")
