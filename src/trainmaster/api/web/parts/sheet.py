"""A table whose rows change in place: what a reader sorted, scrolled or unfolded stays so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from nicegui import ui

from trainmaster.text.control_characters import visible_line
from trainmaster.text.formatting import shortened

Row = Mapping[str, Any]
MOST_TEXT = 300
PAGE = 50
LINK = """
<q-td :props="props">
  <a v-if="props.row.{name}__to" class="nicegui-link" :href="props.row.{name}__to">{{{{ props.value }}}}</a>
  <span v-else>{{{{ props.value }}}}</span>
</q-td>
"""
MARK = """
<q-td :props="props" :class="props.row.{name}__best ? 'text-bold text-positive' : ''">
  {{{{ props.value }}}}{{{{ props.row.{name}__best ? ' \N{BLACK STAR}' : '' }}}}
</q-td>
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A cell is text, or `(what it sorts by, text)`."""

    name: str
    label: str
    is_number: bool = False
    to: str = ""
    """Where a cell leads, with `{}` for its text: `/nodes/{}`."""
    wraps: bool = False
    is_marked: bool = False
    """Whether the row says by `NAME__best` that this is the best of its column."""


class Sheet:
    """Rows by columns; `show` replaces the rows."""

    def __init__(self, columns: Sequence[Column], *, key: str, empty: str) -> None:
        self._columns, self._key = columns, key
        self._table = ui.table(
            columns=[_described(each) for each in columns],
            rows=[],
            row_key=key,
            pagination={"rowsPerPage": PAGE},
        )
        self._table.props("flat bordered dense hide-pagination").classes("w-full")
        for each in columns:
            slot = LINK if each.to else MARK if each.is_marked else None
            if slot is not None:
                self._table.add_slot(f"body-cell-{each.name}", slot.format(name=each.name))
        self._empty = ui.label(empty).classes("text-sm opacity-70")
        self._shown: list[dict[str, Any]] | None = None

    def show(self, rows: Iterable[Row]) -> None:
        found = [self._cells(row) for row in rows]
        if found == self._shown:
            return
        self._shown = found
        self._table.rows = found
        if len(found) > PAGE:
            self._table.props(remove="hide-pagination")
        self._table.set_visibility(bool(found))
        self._empty.set_visibility(not found)

    def _cells(self, row: Row) -> dict[str, Any]:
        cells: dict[str, Any] = {self._key: row[self._key]}
        for each in self._columns:
            value = row.get(each.name)
            by, text = value if isinstance(value, tuple) else (value, value)
            cells[each.name] = by
            cells[f"{each.name}__text"] = _text(text)
            if each.to and text not in (None, ""):
                cells[f"{each.name}__to"] = each.to.format(quote(str(text), safe=""))
            if each.is_marked:
                cells[f"{each.name}__best"] = bool(row.get(f"{each.name}__best"))
        return cells


def _text(value: object) -> str:
    """Nothing in a name changes how the rest is read."""
    return "" if value is None else shortened(visible_line(str(value)), MOST_TEXT)


def _described(column: Column) -> dict[str, Any]:
    wide = "white-space: normal; min-width: 14rem; overflow-wrap: anywhere" if column.wraps else ""
    return {
        "name": column.name,
        "label": column.label,
        "field": column.name,
        "align": "right" if column.is_number else "left",
        "sortable": True,
        "style": wide,
        ":format": f"(value, row) => row[{column.name + '__text'!r}]",
    }
