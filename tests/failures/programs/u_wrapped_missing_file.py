# reason: missing-file
class TrainingError(Exception):
    pass


def load():
    return open("/mnt/corpus/vocab.json")


try:
    load()
except OSError as error:
    raise TrainingError("could not set up the run") from error
