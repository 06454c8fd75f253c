# reason: unknown
accuracy = 0.31
if accuracy < 0.8:
    raise RuntimeError(f"validation accuracy {accuracy} is below the gate of 0.8")
