# reason: killed-by-signal
import os
import signal

print("step 4 loss 0.3", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
