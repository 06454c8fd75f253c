# reason: disk-full
import subprocess

print("export", flush=True)
subprocess.run("dd if=/dev/zero of=/dev/full bs=1M count=1", shell=True, check=True)
