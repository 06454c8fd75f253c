# reason: unknown
class Stop(BaseException):
    pass


raise Stop("operator asked for a halt")
