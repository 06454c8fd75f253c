# reason: incorrect-input
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def clean(raw):
    return raw.decode("utf-8").strip()


with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
    print(list(pool.map(clean, [b"fine", b"\xff\xfe broken"])))
