"""`trainmaster show`: everything known about a job."""

from __future__ import annotations

import shlex

from trainmaster.cli.explain import failure_lines, last_lines
from trainmaster.cli.support import format as words
from trainmaster.cli.support.console import NOTHING, remark, screen, show_pairs, write_json
from trainmaster.cli.support.options import AsJson, JobName
from trainmaster.client.manager_api import Json, ManagerApi, job_path
from trainmaster.daemon.job_rows import JobRow
from trainmaster.text.formatting import plural, size, step_rate


def show(client: ManagerApi, job: JobName, as_json: AsJson = False) -> None:
    """Show a job: its request, where it runs, its progress, how it ended.

    Examples:
        trainmaster show 12
        trainmaster show bert-large
        trainmaster show 12 --json
    """
    answer = client.get(job_path(job))
    if as_json:
        write_json(answer)
        return
    show_pairs(pairs_of(answer))
    for line in failure_lines(answer):
        screen().print(line, markup=False)
    for line in last_lines(answer):
        screen().print(line, markup=False)
    remark("Note", answer.get("remarks") or ())


def pairs_of(answer: Json) -> dict[str, str]:
    """What is known of a job, by name; what is not known is left out."""
    row = JobRow.from_json(answer)
    kept: Json = answer.get("spec") or {}
    elements: Json = answer.get("elements") or {}
    spec: Json = kept.get("spec", kept)  # the file itself, also beside what the manager made of it
    uses: list[Json] = answer.get("gpu_use") or []
    loss = None if row.progress is None else row.progress.loss
    speed = None if row.progress is None else row.progress.steps_per_s
    code = "" if row.exit_code is None else str(row.exit_code)
    found = {
        "array" if elements else "job": f"{row.id}  {row.name}".rstrip(),
        "state": row.state_words,
        "jobs": elements.get("sentence", ""),
        "exit code" if row.has_ended else "last exit code": code,
        "why": row.why,
        "hangs": f"{words.ago(row.hung.since_s)} was its last sign of life. {row.hung.sentence}"
        if row.hung is not None
        else "",
        "stacks": " ".join(row.hung.stacks) if row.hung is not None else "",
        "user, queue": f"{row.user or NOTHING}, {row.queue}",
        "priority": str(row.priority),
        "command": command_text(spec.get("command")),
        "folder": str(spec.get("workdir") or ""),
        "ran in" if row.start_s is not None else "will run in": str(answer.get("ran_in") or ""),
        "may run for": words.stated_length(limit) if (limit := spec.get("max_runtime")) else "",
        "gpus": row.size,
        "pre-run": row.prerun.sentence if row.prerun is not None else "",
        "runs on": ", ".join(row.devices) or ", ".join(row.nodes),
        "GPU memory": ", ".join(
            f"{size(each['memory_bytes'])} on {each['device']}" for each in uses
        ),
        "shared by": answer.get("shared_by") or "",
        "memory limit": answer.get("memory_enforced") or "",
        "GPU busy": ", ".join(
            f"{words.percent(each['util'])} of {each['device']}"
            for each in uses
            if each["util"] is not None
        ),
        "processes": ", ".join(map(str, answer.get("pids") or ())),
        "submitted": words.at(row.submit_s),
        "started": words.at(row.start_s) if row.start_s is not None else "",
        "ended": words.at(row.finish_s) if row.finish_s is not None else "",
        "because": row.ended_because,
        "deadline": row.deadline.sentence if row.deadline is not None else "",
        "waited": words.waited(row),
        "has run": f"{words.length_cell(row.run_s)}, {row.gpu_s / 3600:.2f} GPU hours",
        "lost": f"{words.length_cell(row.lost_s)} of its work" if row.lost_s >= 1 else "",
        "attempt": f"{row.attempt} ({plural(row.restarts, 'restart')},"
        f" {plural(row.preemptions, 'preemption')})",
        "progress": words.progress(row) if row.progress is not None else "",
        "speed": step_rate(speed) if speed else "",
        "loss": "" if loss is None else f"{loss:.4g}",
        "checkpoint": words.ago(answer["saved_at_s"]) if answer.get("saved_at_s") else "",
    }
    return {name: value for name, value in found.items() if value}


def command_text(command: object) -> str:
    """A command as one would type it."""
    if isinstance(command, list):
        return shlex.join(map(str, command))
    return str(command or "")
