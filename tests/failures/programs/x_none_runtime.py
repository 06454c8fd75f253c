# reason: unknown
def check():
    raise RuntimeError("scheduler state is inconsistent: 4 of 7 tokens spent")


check()
