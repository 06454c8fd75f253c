# reason: index-out-of-range
class CallbackError(RuntimeError):
    pass


def on_batch_end(history):
    return history[-5]


def fit():
    try:
        on_batch_end([0.1])
    except Exception as error:
        raise CallbackError(f"callback failed: {error!r}") from error


fit()
