# reason: unknown
cat >&2 <<'END'
Exception in thread "main" java.lang.IllegalStateException: ledger 12 already settled
	at com.acme.ledger.Settlement.close(Settlement.java:88)
	at com.acme.ledger.Main.main(Main.java:14)
END
exit 1
