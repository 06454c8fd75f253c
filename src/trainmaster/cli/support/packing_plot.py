"""Step times and total speed by the number of copies on one GPU (Big Brain, figure 5)."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.cli.support.packing_advice import NAMES, gain
from trainmaster.engines.packing_experiment import Measurement
from trainmaster.report import palette
from trainmaster.report.charts import WIDE_IN, Chart, styled

HEIGHT_IN = 4.0


def drawn(rows: Sequence[Measurement], title: str, kind: str) -> bytes:
    """The figure as a file of this kind."""
    return _chart(rows, title).written(title, kind)


@styled
def _chart(rows: Sequence[Measurement], title: str) -> Chart:
    from matplotlib.ticker import LogLocator

    chart = Chart(title, WIDE_IN, HEIGHT_IN)
    times, speed = chart.panels(1, 2)
    counts = sorted({row.copies for row in rows})
    for slot, sharing in enumerate(dict.fromkeys(row.sharing for row in rows)):
        mine = [row for row in rows if row.sharing == sharing]
        colour, at = palette.policy_shade(slot).light, [row.copies for row in mine]
        name = NAMES[sharing]
        spread = [row.variance_ms2**0.5 for row in mine]
        times.errorbar(
            at,
            [row.mean_ms for row in mine],
            spread,
            color=colour,
            marker="o",
            capsize=3,
            label=f"{name}: mean and standard deviation",
        )
        times.plot(at, [row.max_ms for row in mine], ":", color=colour, label=f"{name}: maximum")
        speed.plot(at, [gain(row, rows) for row in mine], color=colour, marker="o", label=name)
    times.set(title="Time of a step", xlabel="copies", ylabel="ms", yscale="log")
    speed.set(title="Steps of all copies, over one alone", xlabel="copies", ylim=(0, None))
    times.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    times.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    for axes in (times, speed):
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.minorticks_off()
        axes.legend(frameon=False, loc="best")
    return chart
