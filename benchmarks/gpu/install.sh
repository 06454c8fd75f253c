#!/bin/sh
# Install Trainmaster beside this machine's own PyTorch, without a network:
#     sh gpu-bundle/install.sh [FOLDER]        (default: /tmp/trainmaster-venv; PYTHON=python3.12 names the Python)
# The new environment sees what PYTHON has installed (torch, numpy), and nothing is written there.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
VENV=${1:-/tmp/trainmaster-venv}
PYTHON=${PYTHON:-$(command -v python3)}
"$PYTHON" -c 'import sys; sys.version_info[:2] == (3, 12) or sys.exit("this bundle is for Python 3.12: set PYTHON")'
"$PYTHON" -m venv --without-pip --system-site-packages "$VENV"
OURS=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$OURS/beside.pth"
PIP=$(echo "$HERE"/wheels/pip-*.whl)
"$VENV/bin/python" "$PIP/pip" install -qq --disable-pip-version-check --no-index --no-deps --no-compile \
  --ignore-installed --no-warn-script-location "$HERE"/wheels/*.whl
"$VENV/bin/python" -m compileall -qq -j 0 "$OURS" || true
echo "installed into $VENV: $("$VENV/bin/trainmaster" --version)"
