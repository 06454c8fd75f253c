# reason: incorrect-input
import json

LINES = ['{"text": "a"}', '{"text": "b"', '{"text": "c"}']


def read_samples():
    for line in LINES:
        yield json.loads(line)


print(len(list(read_samples())))
