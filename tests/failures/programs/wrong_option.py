# reason: bad-arguments
"""An option is misspelled."""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float)
parser.parse_args(["--learnin-rat", "0.1"])
