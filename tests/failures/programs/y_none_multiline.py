# reason: unknown
raise RuntimeError(
    "release blocked\n- reviewer: missing\n- memory: within limits\n- permission: pending\n"
)
