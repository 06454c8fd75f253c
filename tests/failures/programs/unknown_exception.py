# reason: unknown
"""An exception of its own."""


class FluxCapacitorMisaligned(Exception):
    pass


raise FluxCapacitorMisaligned("align it first")
