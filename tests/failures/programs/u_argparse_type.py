# reason: bad-arguments
import argparse

parser = argparse.ArgumentParser(prog="train.py")
parser.add_argument("--epochs", type=int)
parser.add_argument("--optimizer", choices=["adam", "sgd"])
parser.parse_args(["--epochs", "ten", "--optimizer", "lion"])
