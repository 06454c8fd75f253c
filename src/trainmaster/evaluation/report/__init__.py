"""The report of a suite result: one HTML page, the same as Markdown with figures, and all scores as CSV."""

from trainmaster.evaluation.report.page import write_report
from trainmaster.report.atomic_write import ReportError

__all__ = ["ReportError", "write_report"]
