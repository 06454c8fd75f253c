# reason: assertion-error
def check(batch):
    assert len(batch) % 8 == 0


check([1, 2, 3])
