# reason: import-error
set -e
python3 -S -m nowhere_train.cli --epochs 1
