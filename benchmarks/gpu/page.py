"""The page docs/measurements/gpu.md and its plots, from the results of the other programs. Needs matplotlib.

    python -m benchmarks.gpu.page [--results DIR] [--out docs/measurements]

What has not been measured is said to be missing; results of a played GPU are refused.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Found = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    *("freeze_thaw", "cooperative", "time_slicing", "packing_live"),
    *("profile_packing", "prediction", "sharing", "crashes", "readme"),
    *("self_test", "first_look"),
)
GIB = 1 << 30


def page(found: dict[str, Found], plots: list[str]) -> str:
    """The text. Each section names its program and the run."""
    lines = ["# On a real GPU", ""]
    lines += [
        "Written by `python -m benchmarks.gpu.page` from what the programs measured; [how to run"
        " them](../../benchmarks/gpu/README.md). Absolute figures are of one machine on one day.",
        "",
    ]
    for name, (title, section) in SECTIONS.items():
        lines += [f"## {title}", ""]
        if name not in found:
            lines += [f"Not measured yet: `python -m benchmarks.gpu.{name}`.", ""]
            continue
        lines += [source(name, found[name]), ""]
        lines += [*section(found[name]), ""]
        lines += [f"![{title}]({plot})\n" for plot in plots if plot == f"gpu-{name}.svg"]
    return "\n".join(lines).rstrip() + "\n"


def source(name: str, read: Found) -> str:
    """Which program measured it, where and when."""
    machine = read.get("machine", {})
    driver = f"driver {machine['driver']}" if "driver" in machine else None
    said = (read.get("date"), machine.get("gpu", read.get("gpu")), driver)
    what = ", ".join(str(each) for each in said if each) or "from the results above"
    raw = f"[raw](../../benchmarks/results/gpu/{name}.json)"
    return f"`python -m benchmarks.gpu.{name}`: {what}; {raw}."


def steps(read: Found) -> Iterator[tuple[str, Found]]:
    yield from read["steps"].items()


def table(headings: str, rows: list[tuple[object, ...]]) -> list[str]:
    count = headings.count("|") + 1
    return [
        f"| {headings} |",
        "|" + "---|" * count,
        *(f"| {' | '.join(map(str, row))} |" for row in rows),
    ]


def went(read: Found, *names: str) -> list[str]:
    """What did not go well, so that no figure hides it."""
    bad = [
        f"- `{name}`: {step['went']}"
        for name, step in steps(read)
        if step.get("went", "ok") != "ok" and (not names or name in names)
    ]
    return ["", *bad] if bad else []


def freeze_thaw(read: Found) -> list[str]:
    rows: list[tuple[object, ...]] = []
    for name, step in steps(read):
        if "median_ms" in step and name != "cycles":
            took, cycles = step["median_ms"], step["cycles"]
            used, left, back = cycles[-1]["gpu_mib"]
            rows.append(
                (
                    f"{step['size_gib']:g} GiB",
                    ms(took["checkpoint"]),
                    ms(took["restore"]),
                    ms(took["freeze_s"]),
                    ms(took["thaw_s"]),
                    f"{used:,} / {left:,} / {back:,} MiB",
                    "yes" if step.get("trains_on") else "no",
                )
            )
    lines = table(
        "fills | checkpoint | restore | whole freeze | whole thaw | GPU memory before, between, after"
        " | trains on",
        rows,
    )
    lines += [
        "",
        "Medians of three cycles. The whole is our program with its start; the rest the driver's call.",
    ]
    many = read["steps"].get("cycles", {})
    if "done" in many:
        same = {True: "identical to", False: "**different from**"}.get(
            many.get("weights_are_the_same")
        )
        lines += ["", f"{many['done']} of {many['asked']} cycles at {many['size_gib']:g} GiB:"]
        lines[-1] += (
            f" the weights were {same} those of an undisturbed run."
            if same
            else " the program trained on; its weights were not compared, as time was over."
        )
        if "beside" in many:
            lines[-1] += f" Measured {many['date']}, beside {many['beside']}."
    return lines + went(read)


def cooperative(read: Found) -> list[str]:
    rows: list[tuple[object, ...]] = [
        (
            f"{row['gib']:g} GiB",
            ms(row["first_ms"]),
            ms(row["freeze_ms"]),
            f"{row['freeze_over_link']:.2f}",
            ms(row["thaw_ms"]),
            f"{row['thaw_over_link']:.2f}",
            f"{row['left_gib']:.2f} GiB",
            "yes" if row["is_equal"] else "**no**",
        )
        for row in read["rows"]
    ]
    link = read["link_gib_per_s"]
    lines = table(
        "state | first freeze | freeze | over the link's time | thaw | over the link's time"
        " | left on the GPU | same weights",
        rows,
    )
    lines += [
        "",
        f"The link alone: {link['out']:.1f} GiB/s out, {link['back']:.1f} GiB/s back. The first",
    ]
    lines[-1] += " freeze allocates the pinned memory, which is kept."
    return lines


def time_slicing(read: Found) -> list[str]:
    rows: list[tuple[object, ...]] = [
        (how, step["makespan_s"], "yes" if step["all_ended"] else "no", switches(step))
        for how, step in steps(read)
        if "makespan_s" in step
    ]
    lines = table("how | all done after, s | all ended | times frozen", rows)
    over = read["steps"].get("overhead", {})
    if "percent" in over:
        same = "the same" if over.get("different_weights") == 1 else "**not the same**"
        lines += ["", f"Overhead of taking turns: {over['percent']} %. Final weights: {same}."]
    return lines + went(read)


def switches(step: Found) -> int:
    return sum("Stopped in memory" in line for story in step.get("stories", []) for line in story)


def packing_live(read: Found) -> list[str]:
    rows: list[tuple[object, ...]] = [
        (mode, *(row.get(key, "") for key in PACKED))
        for mode, step in steps(read)
        for row in step.get("rows", [])
    ]
    return table(f"sharing | {' | '.join(PACKED)}", rows) + went(read)


def profile_packing(read: Found) -> list[str]:
    step = read["steps"].get("packing", {})
    if "rows" not in step:
        return went(read)
    rows = [(*(row[key] for key in PROFILED),) for row in step["rows"]]
    advice = step["recommended"]
    said = f"Recommended: {advice['copies']} by {advice['sharing']}, gain {advice['gain']:.2f}."
    return [*table(" | ".join(PROFILED), rows), "", said, *went(read)]


PROFILED = ("copies", "sharing", "mean_ms", "max_ms", "variance_ms2", "steps_per_s", "gain")


def prediction(read: Found) -> list[str]:
    """What the simulator says of two of the experiments, told how long jobs take alone."""
    turns = read["steps"]["time_slicing"]
    rows: list[tuple[object, ...]] = [
        (
            "three jobs by turns: all done after, s",
            turns["measured_makespan_s"],
            turns["predicted_makespan_s"],
            turns["ratio"],
        )
    ]
    rows += [
        (
            f"{row['jobs']} small jobs by {row['sharing']}, `{name}`: gain",
            row["measured_gain"],
            row["predicted_gain"],
            row["ratio"],
        )
        for name in ("packing_live", "profile_packing")
        for row in read["steps"].get(name, [])
        if row["jobs"] > 1
    ]
    told = "The simulation is told how long a job takes alone, what it books, and what part of the GPU it"
    told += " uses alone ([how that is known](../perf.md#company-on-a-gpu)), and nothing of the packed runs."
    return [*table("experiment | measured | predicted | ratio", rows), "", told]


PACKED = ("processes", "ms_per_step", "max_ms", "variance_ms2", "total_steps_per_s", "gain")


def sharing(read: Found) -> list[str]:
    rows: list[tuple[object, ...]] = []
    for name, step in steps(read):
        if name == "halves" and "found" in step:
            paces = " and ".join(f"{each['ms_per_step']:.2f}" for each in step["found"] if each)
            rows.append((name, f"{', '.join(step['states'])}; {paces} ms per step"))
        elif name == "classes":
            rows += [(f"{name}, {kind}", of_class(step[kind])) for kind in KINDS if kind in step]
        elif "is_unhurt" in step:
            rows.append(
                (name, f"the neighbour {'succeeded' if step['is_unhurt'] else '**was hurt**'}")
            )
    return table("step | result", rows) + went(read)


KINDS = ("filling", "light")


def of_class(found: Found) -> str:
    """A guaranteed job beside an opportunistic one, each second of it by its own log."""
    if not found["guest_ran_beside"]:
        return "the guest was not started beside it, as it fills the GPU, but after it"
    if "slowdown" not in found:
        return "not measured"
    return (
        f"guaranteed job: {found['alone_ms']:.2f} ms per step alone, {found['beside_ms']:.2f} beside the"
        f" guest: {abs(100 * found['slowdown']):.1f} % {'longer' if found['slowdown'] > 0 else 'shorter'},"
        f" tolerance {100 * found['tolerance']:.0f} %;"
        f" the guest made {found['guest_steps']:,} steps"
    )


def crashes(read: Found) -> list[str]:
    rows: list[tuple[object, ...]] = [
        (
            name,
            step["killed_while"]["state"],
            step.get("found_again", {}).get("state", ""),
            step.get("state", ""),
            step.get("attempt", ""),
            "yes" if step.get("weights_are_the_same") else "no",
        )
        for name, step in steps(read)
        if "killed_while" in step
    ]
    return table(
        "killed while | state then | found again | in the end | attempts | same weights", rows
    ) + went(read)


def told(read: Found) -> list[str]:
    lines: list[str] = []
    for step in read["steps"].values():
        for row in step.get("commands", []):
            said = [line.rstrip() for line in row["said"].rstrip().splitlines()]
            lines += ["```console", f"$ {row['command']}", *said, "```", ""]
    return lines + went(read)


def self_test(read: Found) -> list[str]:
    """What `node test` said each time, and what a job was told while the GPU was set aside."""
    step = read["steps"]["self-test"]
    rows: list[tuple[object, ...]] = [
        (test["s"], each["verdict"], each["sentence"])
        for test in step.get("tests", [])
        for each in json.loads(test["said"])["tests"]
    ]
    lines = table("whole command, s | verdict | said", rows)
    if "while_blocked" in step:
        said = step["while_blocked"].splitlines()[0]
        lines += ["", f"While the GPU was set aside, `explain` said: {said}"]
    if step.get("second_ended"):
        lines[-1] += " Given back, it ran the job."
    return lines + went(read)


def first_look(read: Found) -> list[str]:
    """Each step in a line, and what was seen of the freezes."""
    made = read["steps"]
    rows: list[tuple[object, ...]] = [
        (name, step.get("went", ""), step.get("took_s", "")) for name, step in steps(read)
    ]
    lines = table("step | went | took, s", rows)
    cycles = [step for name, step in made.get("freeze", {}).items() if name.startswith("cycle_")]
    if cycles:
        used = cycles[0]["before"]["process_mib"]
        frozen = ", ".join(ms(call_ms(each["freeze"], "checkpoint")) for each in cycles)
        thawed = ", ".join(ms(call_ms(each["thaw"], "restore")) for each in cycles)
        lines += [
            "",
            f"- A program with {used:,} MiB on the GPU: checkpoint {frozen}; restore {thawed}.",
        ]
    if "weights_are_the_same" in made.get("compare", {}):
        same = "the same as" if made["compare"]["weights_are_the_same"] else "**other than**"
        lines += [
            f"- Its weights after {made['compare']['frozen']['steps']:,} steps: {same} those of an"
        ]
        lines[-1] += " equal program that was left alone."
    by_hand = made.get("rotate", {}).get("gpu_mib_by_hand")
    if by_hand:
        lines += [
            f"- `suspend` and `resume` of a job: {by_hand[0]:,}, {by_hand[1]:,} and {by_hand[2]:,} MiB"
        ]
        lines[-1] += " in use on the GPU before, between and after."
    for name, story in zip(
        ("first", "second"), made.get("rotate", {}).get("stories", []), strict=False
    ):
        lines += [
            "",
            f"Story of the {name} of two jobs that need a GPU each:",
            "",
            "```text",
            *story,
            "```",
        ]
    return lines


def call_ms(said: Found, did: str) -> float:
    return float(next(line["ms"] for line in said["lines"] if line.get("did") == did))


def ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


SECTIONS: dict[str, tuple[str, Callable[[Found], list[str]]]] = {
    "freeze_thaw": ("Freezing an unmodified program by the driver", freeze_thaw),
    "cooperative": ("Giving the memory back by itself", cooperative),
    "time_slicing": ("Three jobs that do not fit take turns", time_slicing),
    "packing_live": ("Small jobs at once", packing_live),
    "profile_packing": ("How many copies one GPU carries", profile_packing),
    "prediction": ("What the simulator says of it", prediction),
    "sharing": ("Sharing", sharing),
    "crashes": ("The manager is killed", crashes),
    "readme": ("The README's section on training", told),
    "self_test": ("The self-test, and a GPU set aside", self_test),
    "first_look": ("Everything once", first_look),
}


def draw(found: dict[str, Found], out: Path) -> list[str]:
    """The plots that there is something for; their names."""
    drawn = []
    for name, plot in (("freeze_thaw", plot_freeze), ("packing_live", plot_packing)):
        if name in found and (text := plot(found[name])):
            path = out / f"gpu-{name}.svg"
            path.write_bytes(text)
            drawn.append(path.name)
    return drawn


def plot_freeze(read: Found) -> bytes:
    sized = [step for name, step in steps(read) if name != "cycles" and "median_ms" in step]
    lines = {
        verb: [(step["size_gib"], step["median_ms"][call] / 1000) for step in sized]
        for verb, call in (("freeze", "checkpoint"), ("thaw", "restore"))
    }
    return (
        plotted("Freezing and thawing by the driver", lines, "GiB beside the model", "s")
        if sized
        else b""
    )


def plot_packing(read: Found) -> bytes:
    lines = {
        mode: [(row["processes"], row["gain"]) for row in step["rows"] if "gain" in row]
        for mode, step in steps(read)
        if step.get("rows")
    }
    title = "Steps of all jobs, over one alone"
    return plotted(title, lines, "jobs", "times") if any(lines.values()) else b""


def plotted(title: str, lines: dict[str, list[tuple[float, float]]], x: str, y: str) -> bytes:
    from trainmaster.report import palette
    from trainmaster.report.charts import HALF_IN, Chart, styled

    @styled
    def chart() -> Chart:
        made = Chart(title, HALF_IN, 3.2)
        (axes,) = made.panels()
        for slot, (name, points) in enumerate(lines.items()):
            colour = palette.policy_shade(slot).light
            axes.plot(*zip(*points, strict=True), marker="o", color=colour, label=name)
        axes.set(xlabel=x, ylabel=y, ylim=(0, None))
        axes.set_xticks(sorted({at for points in lines.values() for at, _ in points}))
        axes.legend(frameon=False, loc="best")
        return made

    return chart().written(title, "svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results/gpu")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/measurements")
    asked = parser.parse_args()
    files = {name: asked.results / f"{name}.json" for name in NAMES}
    found = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    if not found:
        sys.exit(
            f"There are no results in {asked.results}: run benchmarks.gpu.run_all on a GPU machine first."
        )
    if played := [name for name, read in found.items() if read.get("machine", {}).get("is_fake")]:
        sys.exit(f"{played[0]} was measured on a played GPU: such figures mean nothing.")
    text = page(found, draw(found, asked.out))
    (asked.out / "gpu.md").write_text(text)
    print(f"written to {asked.out / 'gpu.md'}")


if __name__ == "__main__":
    main()
