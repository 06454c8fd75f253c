# reason: syntax-error
set -e
d=$(mktemp -d)
printf 'def train(:\n    pass\n' > $d/train.py
python3 -S $d/train.py
