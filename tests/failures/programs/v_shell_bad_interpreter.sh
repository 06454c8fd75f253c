# reason: command-not-found
d=$(mktemp -d)
printf '#!/opt/nowhere/python3.13\nprint(1)\n' > $d/train
chmod +x $d/train
$d/train
