# reason: host-out-of-memory
ulimit -v 400000
python3 -S -c 'table = bytearray(10**10)'
