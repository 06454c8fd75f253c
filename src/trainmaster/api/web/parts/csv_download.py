"""A button that saves a table of the API as CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from trainmaster.api.web.api_client import ApiClient, Refused
from trainmaster.api.web.parts.question import say_refused


class CsvButton:
    """Asks for the table as it is when it is pressed."""

    def __init__(
        self, api: ApiClient, path: str, file: str, query: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._api, self._path, self._file, self._query = api, path, file, query
        made = ui.button("CSV", icon="download", on_click=self._save)
        made.props("flat dense no-caps size=sm").tooltip(f"Save as {file}")

    async def _save(self) -> None:
        try:
            text = await self._api.get(self._path, format="csv", **self._query())
        except Refused as refusal:
            say_refused(refusal)
        else:
            ui.download.content(text, self._file, "text/csv")
