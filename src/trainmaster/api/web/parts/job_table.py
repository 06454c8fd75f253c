"""Jobs as a table: an array is one row that unfolds, and the reason a job waits is in its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from nicegui import ui
from nicegui.events import GenericEventArguments

from trainmaster.api.web.api_client import Refused
from trainmaster.api.web.viewer import Viewer
from trainmaster.daemon.job_rows import JobRow
from trainmaster.model.job_state import JobState
from trainmaster.text.control_characters import visible_line
from trainmaster.text.formatting import short_length

MOST_UNFOLDED = 200
"""Jobs of an array that are shown below it."""
COLUMNS = (
    *(("id", "Job"), ("name", "Name"), ("user", "User"), ("queue", "Queue"), ("state", "State")),
    *(
        ("gpus", "GPUs"),
        ("time", "Time"),
        ("progress", "Progress"),
        ("end", "Ends"),
        ("why", "Where, or why not"),
    ),
)
COLOURS: Mapping[str, str] = {
    "running": "running",
    "pending": "waiting",
    "suspended": "suspended",
    "succeeded": "succeeded",
    "failed": "failed",
    "timed_out": "failed",
    "cancelled": "waiting",
}
ORDER = tuple(state.value for state in JobState)
BODY = """
<q-tr :props="props" :class="props.row.inside ? 'tm-inside' : ''">
  <q-td key="id" :props="props">
    <q-btn v-if="props.row.array" flat dense round size="xs"
      :icon="props.row.open ? 'expand_more' : 'chevron_right'"
      :aria-label="(props.row.open ? 'Fold ' : 'Unfold ') + props.row.array"
      @click="$parent.$emit('fold', props.row.array)"></q-btn>
    <a :href="props.row.href" class="tm-link">{{ props.row.id }}</a>
  </q-td>
  <q-td key="name" :props="props">
    <div class="tm-name" :title="props.row.name">{{ props.row.name }}</div>
  </q-td>
  <q-td key="user" :props="props">
    <div class="tm-user" :title="props.row.user">{{ props.row.user }}</div>
  </q-td>
  <q-td key="queue" :props="props">
    <div class="tm-user" :title="props.row.queue">{{ props.row.queue }}</div>
  </q-td>
  <q-td key="state" :props="props">
    <span v-for="chip in props.row.states" :key="chip[0]" :class="'tm-state tm-' + chip[1]">
      {{ chip[0] }}
    </span>
  </q-td>
  <q-td key="gpus" :props="props">{{ props.row.gpus }}</q-td>
  <q-td key="time" :props="props">{{ props.row.time }}</q-td>
  <q-td key="progress" :props="props">
    <div v-if="props.row.part !== null" class="tm-progress">
      <q-linear-progress :value="props.row.part" size="6px" rounded></q-linear-progress>
    </div>
    <span class="tm-small">{{ props.row.progress }}</span>
  </q-td>
  <q-td key="end" :props="props">{{ props.row.end }}</q-td>
  <q-td key="why" :props="props"><div class="tm-why" :title="props.row.why">{{ props.row.why }}</div></q-td>
</q-tr>
"""
STYLE = """
.tm-table { width: 100%; }
.tm-table td, .tm-table th { padding: 3px 8px !important; height: 30px !important; font-size: 13px; }
.tm-table .tm-name { max-width: 210px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.tm-table .tm-user { max-width: 110px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.tm-table .tm-why { min-width: 220px; max-width: 460px; white-space: normal; overflow-wrap: anywhere;
  display: -webkit-box; -webkit-line-clamp: 3; -webkit-box-orient: vertical; overflow: hidden; }
.tm-table .tm-state { font-weight: 600; margin-right: 6px; white-space: nowrap; }
.tm-running { color: light-dark(#00785a, #2fcf9f); }
.tm-waiting { color: light-dark(#5b6472, #a3acba); }
.tm-suspended { color: light-dark(#a86400, #f5be41); }
.tm-succeeded { color: light-dark(#0072b2, #6cb8ee); }
.tm-failed { color: light-dark(#c0392b, #ff7a6b); }
.tm-table .tm-small { font-size: 12px; }
.tm-table .tm-progress { width: 90px; }
.tm-table .tm-inside td:first-child { padding-left: 34px !important; }
@media (max-width: 700px) {
  .tm-table :is(th, td):is(:nth-child(3), :nth-child(4), :nth-child(n+6):nth-child(-n+9)) { display: none; }
  .tm-table :is(td, th) { padding: 3px 4px !important; }
  .tm-table .tm-name { max-width: 84px; }
  .tm-table .tm-state { white-space: normal; }
  .tm-table .tm-why { min-width: 110px; }
}
.tm-link { color: var(--q-primary); text-decoration: none; }
.body--dark .tm-link { color: #6cb8ee; }
.tm-link:hover { text-decoration: underline; }
"""


class JobTable:
    """Rows as `GET /jobs?fold=true` answers them; what is unfolded stays so."""

    def __init__(self, viewer: Viewer, empty: str) -> None:
        self._viewer = viewer
        self._listed: Sequence[dict[str, Any]] = ()
        self._arrays: Mapping[str, Mapping[str, int]] = {}
        self._inside: dict[str, list[dict[str, Any]]] = {}
        """Of the arrays that are unfolded: the rows below them."""
        self._filters: Mapping[str, Any] = {}
        self._now_s = 0.0
        ui.add_css(STYLE)
        columns = [
            {"name": name, "label": label, "field": name, "align": "left"}
            for name, label in COLUMNS
        ]
        self._table = ui.table(columns=columns, rows=[], row_key="id").classes("tm-table")
        self._table.props("flat dense hide-pagination :rows-per-page-options=[0] binary-state-sort")
        self._table.props["no-data-label"] = "Loading …"
        self._empty = empty
        self._table.add_slot("body", BODY)
        self._table.on("fold", self._fold)

    @property
    def unfolded(self) -> Sequence[str]:
        return list(self._inside)

    async def show(
        self, answer: Mapping[str, Any], now_s: float, filters: Mapping[str, Any] | None = None
    ) -> None:
        """An answer, made with these filters, which the jobs of unfolded arrays are asked for with too."""
        self._listed, self._arrays = answer["jobs"], answer.get("arrays") or {}
        self._filters, self._now_s = filters or {}, now_s
        for array in list(self._inside):
            if array in self._arrays:
                await self._read(array)
        self._draw()

    async def _fold(self, event: GenericEventArguments) -> None:
        array = str(event.args)
        if self._inside.pop(array, None) is None:
            await self._read(array)
        self._draw()

    async def _read(self, array: str) -> None:
        try:
            found = await self._viewer.api.get(
                "/jobs", **{**self._filters, "array": array, "limit": MOST_UNFOLDED}
            )
        except Refused as refusal:
            ui.notify(str(refusal), type="warning")
            return
        self._inside[array] = found["jobs"]

    def _draw(self) -> None:
        rows: list[dict[str, Any]] = []
        for listed in self._listed:
            states = self._arrays.get(listed["array"] or "")
            if states is None:
                rows.append(self._row(listed))
                continue
            array = listed["array"]
            inside = self._inside.get(array)
            rows.append(self._array_row(listed, states, is_open=inside is not None))
            rows += [{**self._row(each), "inside": True} for each in inside or ()]
        self._table.props["no-data-label"] = self._empty
        if rows != self._table.rows or not rows:
            self._table.rows = rows

    def _row(self, listed: Mapping[str, Any]) -> dict[str, Any]:
        row = JobRow.from_json(dict(listed))
        is_known = row.submit_s > 0
        return {
            "id": row.id,
            "href": f"/jobs/{quote(row.id, safe='')}",
            "name": visible_line(row.name),
            "user": visible_line(row.user),
            "queue": visible_line(row.queue),
            "states": [(row.state_words, COLOURS[row.state])],
            "gpus": row.size,
            "time": time_words(row) if is_known else "",
            "part": _part(row),
            "progress": progress_words(row),
            "end": self._end(row),
            "why": visible_line(row.where_or_why),
            "array": None,
            "open": False,
            "inside": False,
        }

    def _array_row(
        self, listed: Mapping[str, Any], states: Mapping[str, int], *, is_open: bool
    ) -> dict[str, Any]:
        array, total = str(listed["array"]), sum(states.values())
        index = listed["array_index"]
        name = str(listed["name"]).removesuffix(f"_{index}").removesuffix(f"[{index}]")
        ended = sum(
            states.get(state, 0) for state in ("succeeded", "failed", "timed_out", "cancelled")
        )
        row = self._row(listed)
        return {
            **row,
            "id": f"{array} ({total:,} jobs)",
            "href": f"/jobs/{quote(array, safe='')}",
            "name": visible_line(name),
            "states": [
                (f"{states[each]:,} {each.replace('_', ' ')}", COLOURS[each])
                for each in ORDER
                if states.get(each)
            ],
            "gpus": f"{total:,}x{listed['gpus']:g}",
            "time": "",
            "part": ended / total,
            "progress": f"{ended:,} of {total:,} ended",
            "end": "",
            "array": array,
            "open": is_open,
        }

    def _end(self, row: JobRow) -> str:
        left = left_s(row, self._now_s)
        return "" if left is None else f"in {short_length(left)}"


def time_words(row: JobRow) -> str:
    """How long it has waited or run."""
    if row.has_ended:
        return f"ran {short_length(row.run_s)}"
    if row.waiting_s is not None:
        return f"waits {short_length(row.waiting_s)}"
    return f"runs {short_length(row.run_s)}"


def progress_words(row: JobRow) -> str:
    known = row.progress
    if known is None:
        return ""
    return f"{known.step:,}" + (f" of {known.total_steps:,}" if known.total_steps else "")


def left_s(row: JobRow, now_s: float) -> float | None:
    """How long it still takes by its own report, where it runs and says how many steps there are."""
    known = row.progress
    if known is None or row.state != JobState.RUNNING or not known.total_steps:
        return None
    if not known.steps_per_s:
        return None
    return max(0.0, known.at_s + (known.total_steps - known.step) / known.steps_per_s - now_s)


def _part(row: JobRow) -> float | None:
    known = row.progress
    if known is None or not known.total_steps:
        return None
    return min(1.0, known.step / known.total_steps)
