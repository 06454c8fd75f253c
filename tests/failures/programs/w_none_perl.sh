# reason: unknown
perl -e 'die "ledger closed at noon\n"'
