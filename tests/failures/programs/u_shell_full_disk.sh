# reason: disk-full
set -e
echo "starting preprocessing"
seq 1 100000 > /dev/full
echo done
