"""The page of measurements on a GPU: every result is told, also one that is missing or went wrong."""

from __future__ import annotations

from benchmarks.gpu.page import SECTIONS, page, plot_packing

MACHINE = {"gpu": "NVIDIA H200", "driver": "580.159.04", "is_fake": False}


def test_what_was_not_measured_is_said() -> None:
    text = page({}, [])
    assert text.count("Not measured yet") == len(SECTIONS)


def test_freezes_are_shown_with_what_went_wrong() -> None:
    cycle = {"gpu_mib": [1540, 8, 1540]}
    took = {"checkpoint": 560.4, "restore": 300.0, "freeze_s": 1100.0, "thaw_s": 800.0}
    steps = {
        "1GiB": {
            "median_ms": took,
            "cycles": [cycle],
            "size_gib": 1.0,
            "trains_on": True,
            "went": "ok",
        },
        "16GiB": {"went": "not done within 190 s"},
        "cycles": {"done": 100, "asked": 100, "size_gib": 1.0, "weights_are_the_same": False},
    }
    text = page({"freeze_thaw": {"machine": MACHINE, "date": "today", "steps": steps}}, [])
    assert "| 1 GiB | 560 ms | 300 ms | 1,100 ms | 800 ms | 1,540 / 8 / 1,540 MiB | yes |" in text
    assert "100 of 100 cycles at 1 GiB: the weights were **different from**" in text
    assert "- `16GiB`: not done within 190 s" in text
    assert "today, NVIDIA H200, driver 580.159.04" in text


def test_packing_is_drawn_where_it_was_measured() -> None:
    rows = [{"processes": 1, "gain": 1.0}, {"processes": 8, "gain": 3.9}]
    assert plot_packing({"steps": {"mps": {"rows": rows}, "time": {"went": "skipped"}}})
    assert plot_packing({"steps": {"time": {"went": "skipped"}}}) == b""
