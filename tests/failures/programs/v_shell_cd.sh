# reason: missing-file
set -e
cd /data/experiments/run-12
python train.py
