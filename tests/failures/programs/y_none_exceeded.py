# reason: unknown
class SlaError(Exception):
    pass


raise SlaError("time limit of the agreement exceeded by 3 days")
