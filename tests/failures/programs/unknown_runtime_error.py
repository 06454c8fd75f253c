# reason: unknown
"""A message that nobody knows."""

raise RuntimeError("the teacher and the student disagree about everything")
