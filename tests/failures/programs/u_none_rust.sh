# reason: unknown
echo "thread 'main' panicked at src/ledger.rs:120:9:" >&2
echo "ledger out of balance by 3" >&2
echo "note: run with \`RUST_BACKTRACE=1\` environment variable to display a backtrace" >&2
exit 101
