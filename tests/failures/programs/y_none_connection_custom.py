# reason: unknown
class GraphError(ValueError):
    pass


def check(edges):
    raise GraphError("connection 3 refused by node policy: cycle of length 4")


check([])
