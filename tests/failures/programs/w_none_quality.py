# reason: unknown
class QualityGateError(Exception):
    pass


def compare():
    raise QualityGateError(
        "3 of 12 metrics are worse than baseline: accuracy 0.71 < 0.80, memory 11 GB, 2 timeouts"
    )


compare()
