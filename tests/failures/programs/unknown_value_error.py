# reason: unknown
"""Another one."""

raise ValueError("curriculum stage 3 has not been reached")
