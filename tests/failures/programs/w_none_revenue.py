# reason: unknown
def total(rows):
    if min(rows) < 0:
        raise ValueError("negative revenue in region 4")
    return sum(rows)


total([1, -2])
