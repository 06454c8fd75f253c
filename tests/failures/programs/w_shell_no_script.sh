# reason: missing-file
set -e
python3 -S /workspace/code/trian.py --epochs 3
