# reason: interrupted
import os
import signal
import time

print("epoch 3", flush=True)
os.kill(os.getpid(), signal.SIGINT)
time.sleep(5)
