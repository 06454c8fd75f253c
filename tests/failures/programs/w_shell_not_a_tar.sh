# reason: incorrect-input
set -eo pipefail
cd "$(mktemp -d)"
echo "<html>404</html>" > data.tar.gz
tar xzf data.tar.gz
