"""All pages, as one application."""

from __future__ import annotations

from importlib import import_module

from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import ui

from trainmaster.api.web.viewer import Manager

PAGES = ("overview",)


def site(manager: Manager) -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    for name in PAGES:
        import_module(f"trainmaster.api.web.pages.{name}").add(manager)
    nicegui_app.config.socket_io_js_transports = ["websocket"]
    ui.run_with(app, title="Trainmaster", show_welcome_message=False)
    return app
