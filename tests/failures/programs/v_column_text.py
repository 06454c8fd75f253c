# reason: incorrect-input
ROWS = ["4,5", "6,seven"]


def labels(rows):
    return [int(row.split(",")[1]) for row in rows]


labels(ROWS)
