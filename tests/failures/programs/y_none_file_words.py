# reason: unknown
def audit():
    raise RuntimeError("file review of case 12 was not found acceptable")


audit()
