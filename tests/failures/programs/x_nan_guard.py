# reason: model-diverged
class TrainingDiverged(Exception):
    pass


loss = float("nan")
if loss != loss:
    raise TrainingDiverged(f"Non-finite loss at step 41: {loss}")
