"""`trainmaster whatif`: what another policy, more nodes or other queues would do, by the live manager."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from trainmaster.cli.support import completion
from trainmaster.cli.support.console import remark, say, show_table, write_json
from trainmaster.cli.support.moments import moment_of
from trainmaster.cli.support.options import AsJson, option
from trainmaster.cli.support.progress_bar import ProgressBar
from trainmaster.client.manager_api import Json, ManagerApi
from trainmaster.errors import BadInput, Failed
from trainmaster.input_files import read_yaml
from trainmaster.text.compared_numbers import NUMBERS
from trainmaster.text.formatting import ABSENT, duration
from trainmaster.text.suggest import did_you_mean

POLL_S = 0.3
MOST_SHOWN = 5
"""Winners, and losers, that the table shows; `--json` has more."""
TERMS = {
    "guaranteed": "guaranteed_gpus",
    "maximum": "maximum_gpus",
    "weight": "weight",
}
SHORTHAND = re.compile(r"\d{1,6}(x\d{1,6}){1,3}", re.IGNORECASE)
Side = Mapping[str, Any]
POLICY = "Policies with commas between. Default: the policy in force."
SET_QUEUE = "What is different of a queue: research=guaranteed:8,maximum:12,weight:2."


def whatif(
    client: ManagerApi,
    policy: Annotated[
        str | None, option("--policy NAME,...", POLICY, autocompletion=completion.policies)
    ] = None,
    set_option: Annotated[
        list[str] | None,
        option(
            "--set KEY=VALUE",
            "Option of every named policy; POLICY.KEY=VALUE is for one.",
            autocompletion=completion.settings,
        ),
    ] = None,
    since: Annotated[
        str | None, option("--since TIME", "Look at the past since then. Default: 1d.")
    ] = None,
    queue_now: Annotated[
        bool, option("--queue-now", "Look at the present queue, from now on.")
    ] = False,
    more_nodes: Annotated[int, option("--more-nodes N", "Add nodes of the usual kind.", min=0)] = 0,
    cluster: Annotated[
        str | None,
        option("--cluster SHAPE|FILE", "Another cluster: 8x8, or a YAML file. For the past only."),
    ] = None,
    queues: Annotated[
        Path | None, option("--queues FILE", "Other queues, as YAML, in place of all.")
    ] = None,
    set_queue: Annotated[list[str] | None, option("--set-queue NAME=TERMS", SET_QUEUE)] = None,
    as_json: AsJson = False,
) -> None:
    """Compare what happened, or how the queue goes on, with other policies, nodes or queues.

    Examples:
        trainmaster whatif --policy tiresias-l,fifo
        trainmaster whatif --since 7d --more-nodes 2
        trainmaster whatif --queue-now --policy las
        trainmaster whatif --set-queue research=guaranteed:8 --json
    """
    if queue_now and since is not None:
        raise BadInput("Say --queue-now or --since: the queue from now on, or the past.")
    began = moment_of(since or "1d", "--since")
    asked: Json = {
        "policies": list(_policies(policy, set_option or [])),
        "queue_now": queue_now,
        "since_s": max(0.001, time.time() - began),
        "more_nodes": more_nodes,
        "set_queues": dict(_queue_change(text) for text in set_queue or []),
    }
    if cluster is not None:
        asked["cluster"] = _cluster(cluster)
    if queues is not None:
        asked["queues"] = dict(read_yaml(queues, "the queues file")[0])
    found = _followed(client, client.post("/whatif", asked))
    if as_json:
        write_json(found["result"])
        return
    _show(found["result"])


def _policies(named: str | None, settings: Sequence[str]) -> Iterator[Json]:
    names = [each.strip() for each in (named or "").split(",") if each.strip()]
    options: dict[str, dict[str, str]] = {name: {} for name in names}
    for text in settings:
        key, equals, value = text.partition("=")
        where, dot, inner = key.partition(".")
        only = dot and where in options
        if not equals or not names:
            raise BadInput(f"--set {text!r} is not KEY=VALUE of a policy that --policy names.")
        for name in [where] if only else names:
            options[name][inner if only else key] = value
    yield from ({"name": name, "options": options[name]} for name in names)


def _queue_change(text: str) -> tuple[str, Json]:
    name, equals, terms = text.partition("=")
    if not equals or not name:
        raise BadInput(f"--set-queue {text!r} is not NAME=TERMS, such as research=guaranteed:8.")
    change: Json = {}
    for term in terms.split(","):
        key, _, value = term.partition(":")
        if key not in TERMS:
            raise BadInput(
                f"--set-queue {text!r}: {key!r} is not a term; {did_you_mean(key, TERMS)}"
            )
        try:
            change[TERMS[key]] = int(value) if key == "weight" else float(value)
        except ValueError:
            raise BadInput(f"--set-queue {text!r}: {value!r} is not a number.") from None
    return name, change


def _cluster(text: str) -> Json:
    """The shorthand as a file would say it, or the file."""
    if not SHORTHAND.fullmatch(text):
        return dict(read_yaml(Path(text), "the cluster file")[0])
    *outer, nodes, gpus = (int(each) for each in text.lower().split("x"))
    inside: Json = {"nodes": {"count": nodes, "gpus": gpus}}
    for level, many in zip(("racks", "fabrics"), reversed(outer), strict=False):
        inside = {level: [inside] * many}
    return inside


def _followed(client: ManagerApi, run: Json) -> Json:
    """The what-if when it has ended; it is cancelled where its user gives up."""
    path = f"/whatif/{run['id']}"
    try:
        with ProgressBar("what-if") as bar:
            while run["state"] in ("waiting", "running"):
                time.sleep(POLL_S)
                run = client.get(path)
                bar.update(round(100 * run["progress"]), 100, run["says"])
    except KeyboardInterrupt:
        client.delete(path)
        raise
    if run["state"] != "done":
        raise Failed(run["says"] or f"The what-if was {run['state']}.")
    return run


def _show(result: Json) -> None:
    sides: list[Side] = result["sides"]
    say(result["headline"])
    say("")
    headings = ["", *(_heading(side) for side in sides)]
    rows = [
        [number.label, *(number.words(side[number.key]) for side in sides)]
        for number in NUMBERS
        if any(side[number.key] is not None for side in sides)
    ]
    queues = dict.fromkeys(each["queue"] for side in sides for each in side["queues"])
    for queue in queues if len(queues) > 1 else ():
        rows.append([f"mean wait in {queue}", *(_wait(side, queue) for side in sides)])
    show_table(headings, rows)
    if len(sides) > 1:
        _show_jobs(result)
    remark("Note", result["notes"])


def _heading(side: Side) -> str:
    kind = {"real": "what happened", "in-force": f"{side['name']} (in force)"}
    return kind.get(str(side["kind"]), str(side["name"]))


def _wait(side: Side, queue: str) -> str:
    return next(
        (duration(each["mean_wait_s"]) for each in side["queues"] if each["queue"] == queue), ABSENT
    )


def _show_jobs(result: Json) -> None:
    """Who wins and who loses most under the last column."""
    jobs = [each for each in result["jobs"] if each["changes_s"][-1]]
    chosen = [
        *[each for each in jobs[:MOST_SHOWN] if each["changes_s"][-1] < 0],
        *[each for each in jobs[-MOST_SHOWN:] if each["changes_s"][-1] > 0],
    ]
    sides = result["sides"]
    if not chosen or sides[-1]["kind"] != "other":
        return
    say("")
    headings = [
        "job",
        "name",
        "user",
        "queue",
        "gpus",
        *(_heading(each) for each in sides),
        "change",
    ]
    show_table(
        headings,
        [
            [
                *(each["job"], each["name"], each["user"], each["queue"], f"{each['gpus']:g}"),
                *(duration(side["jct_s"]) for side in each["sides"]),
                _signed(each["changes_s"][-1]),
            ]
            for each in chosen
        ],
    )


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{duration(abs(seconds))}"
