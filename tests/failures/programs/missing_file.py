# reason: missing-file
"""The data set is not there."""

print("reading the data")
open("/data/missing/train.csv")
