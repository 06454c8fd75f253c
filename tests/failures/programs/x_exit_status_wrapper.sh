# reason: core-dump
run() { python3 -S -c 'import os; os.abort()'; }
run || { code=$?; echo "[wrapper] training exited with $code"; exit $code; }
