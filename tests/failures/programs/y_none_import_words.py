# reason: unknown
def customs():
    raise ValueError("import of goods requires form 7")


customs()
