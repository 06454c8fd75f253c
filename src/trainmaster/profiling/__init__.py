"""Measures and traces training programs and links before they are scheduled: memory, step time, bandwidth.

Torch is imported lazily, in the process that looks at a program; the formulas are in `estimators`.
"""
