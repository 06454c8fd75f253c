# reason: unknown
echo "make: *** No rule to make target 'release-notes'.  Stop." >&2
exit 2
