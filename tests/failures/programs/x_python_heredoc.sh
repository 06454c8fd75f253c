# reason: semantic-error
set -e
echo "== stage 1 =="
python3 -S - <<'END'
rows = None
print(len(rows))
END
