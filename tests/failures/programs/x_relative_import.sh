# reason: import-error
d=$(mktemp -d)
echo 'from .model import Net' > $d/train.py
python3 -S $d/train.py
