# reason: incorrect-input
"""The text is in another encoding."""

b"caf\xe9 au lait".decode("utf-8")
