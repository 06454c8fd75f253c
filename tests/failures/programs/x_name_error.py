# reason: semantic-error
def schedule(step):
    return warmup * step  # noqa: F821


for step in range(3):
    print("lr", schedule(step))
