# reason: bad-arguments
import tomllib


def settings(text):
    return tomllib.loads(text)


settings("[model]\nwidth = = 3\n")
