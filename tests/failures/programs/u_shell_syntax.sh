# reason: syntax-error
d=$(mktemp -d)
printf 'for i in 1 2; do\n echo $i\ndone)\n' > $d/run.sh
bash $d/run.sh
