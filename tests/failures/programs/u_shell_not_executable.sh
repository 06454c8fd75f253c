# reason: permission-error
set -e
d=$(mktemp -d)
echo 'echo hi' > $d/train.sh
$d/train.sh --epochs 3
