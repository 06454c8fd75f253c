# reason: unknown
cat >&2 <<'END'
panic: ledger closed

goroutine 1 [running]:
main.settle(...)
	/src/main.go:14
main.main()
	/src/main.go:9 +0x1d
exit status 2
END
exit 1
