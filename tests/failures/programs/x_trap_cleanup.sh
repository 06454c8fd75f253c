# reason: missing-file
set -e
trap 'echo "cleaning up"; echo "logs are in /tmp/logs"' EXIT
cat /data/splits/train.txt > /dev/null
