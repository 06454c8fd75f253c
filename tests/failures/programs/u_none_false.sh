# reason: unknown
set -e
echo "checking permissions ... ok"
echo "0 files missing, 0 errors, memory 12% used"
false
