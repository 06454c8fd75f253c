# reason: command-not-found
set -e
torchrunner --nproc_per_node 2 train.py
