# reason: bad-arguments
set -euo pipefail
echo "data in $TM_UNSEEN_DATA_DIR"
