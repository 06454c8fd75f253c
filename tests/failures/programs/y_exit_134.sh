# reason: core-dump
echo "ledger.c:88: balance check did not hold" >&2
exit 134
