# reason: semantic-error
import multiprocessing
import threading


class Sampler:
    def __init__(self):
        self.lock = threading.Lock()


context = multiprocessing.get_context("spawn")
context.Process(target=print, args=(Sampler(),)).start()
