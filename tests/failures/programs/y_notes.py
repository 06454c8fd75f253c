# reason: missing-file
try:
    open("/datasets/coco/annotations.json")
except OSError as error:
    error.add_note("while building the validation split")
    raise
