# reason: semantic-error
import multiprocessing
import sys


def work(queue):
    print(queue["missing"])


child = multiprocessing.get_context("fork").Process(target=work, args=({},))
child.start()
child.join()
if child.exitcode:
    sys.exit(f"worker failed with exit code {child.exitcode}")
