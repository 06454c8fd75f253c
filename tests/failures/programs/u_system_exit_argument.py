# reason: bad-arguments
learning_rate = -0.1
if learning_rate <= 0:
    raise SystemExit("error: argument --lr: must be positive, not -0.1")
