# reason: syntax-error
"""The program is not Python."""

exec(compile("def step(batch:\n    return batch\n", "step.py", "exec"))
