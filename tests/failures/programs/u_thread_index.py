# reason: index-out-of-range
import sys
import threading

failed = threading.Event()


def prefetch(items):
    try:
        print(items[7])
    finally:
        failed.set()


threading.Thread(target=prefetch, args=([1, 2],), name="prefetch", daemon=True).start()
failed.wait()
__import__("time").sleep(0.3)
sys.exit("prefetch thread is gone")
