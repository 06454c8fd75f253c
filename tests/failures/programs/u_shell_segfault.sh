# reason: core-dump
echo begin
python3 -S -c 'import ctypes; ctypes.memset(0, 1, 8)'
code=$?
echo "trainer left with $code"
exit $code
