"""Rebuild the published report from the scores beside it: `python -m benchmarks.published DIR`.

`trainmaster compare --suite NAME --out docs/results` runs the trials and writes `scores.json`; this adds
what only the project itself needs to that report. `make results` does both.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.published.page import compose
from trainmaster.evaluation.report import write_report
from trainmaster.evaluation.scores_json import from_json
from trainmaster.evaluation.suites import suite_of


def main(folder: Path) -> None:
    result = from_json((folder / "scores.json").read_text(encoding="utf-8"), suite_of)
    print(write_report(result, folder, compose))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
