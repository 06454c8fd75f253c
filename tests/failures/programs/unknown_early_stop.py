# reason: unknown
"""Stops because a metric does."""


class StopPipeline(Exception):
    pass


print("epoch 4 done")
raise StopPipeline("metric plateaued for 3 evaluations")
