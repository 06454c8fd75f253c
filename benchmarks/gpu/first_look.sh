#!/bin/sh
# Install the bundle and look at everything once, in two minutes: PYTHON=... OUT=... sh gpu-bundle/first_look.sh
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
OUT=${OUT:-$PWD/gpu-results}
mkdir -p "$OUT"
export OUT PYTHONUNBUFFERED=1 PYTHON="${PYTHON:-$(command -v python3)}"
export TRAIN_PYTHON="${TRAIN_PYTHON:-$PYTHON}"
VENV=${VENV:-/tmp/trainmaster-venv}
[ -x "$VENV/bin/trainmaster" ] || sh "$HERE/install.sh" "$VENV" || exit 1
cd "$HERE" && "$VENV/bin/python" -m benchmarks.gpu.first_look --seconds "${SECONDS_IN_ALL:-100}" 2>&1 | tee "$OUT/first_look.log"
