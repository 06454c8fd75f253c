# reason: time-limit
echo "epoch 0"
timeout 1 sleep 20
