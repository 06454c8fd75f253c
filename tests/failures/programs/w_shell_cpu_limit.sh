# reason: killed-by-signal
bash -c 'ulimit -t 1; while :; do :; done'
