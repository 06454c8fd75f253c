# reason: killed-by-signal
import os
import signal

for step in range(3):
    print("step", step, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
