"""A comparison of policies as one HTML page, with its plots as PNG and its numbers as CSV."""

from trainmaster.report.atomic_write import ReportError
from trainmaster.report.page import write_report

__all__ = ["ReportError", "write_report"]
