# reason: unknown
class LabelerTimeout(Exception):
    pass


raise LabelerTimeout("labeler 12 did not answer within 30 s")
