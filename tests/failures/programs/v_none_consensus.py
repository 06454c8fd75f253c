# reason: unknown
def gate(votes):
    if len(set(votes)) > 1:
        raise RuntimeError(f"expected consensus of 5 evaluators, but 3 differ: {votes}")


gate([1, 1, 0, 0, 0])
