# reason: unknown
raise Exception
