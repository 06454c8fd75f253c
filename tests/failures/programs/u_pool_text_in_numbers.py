# reason: incorrect-input
import multiprocessing


def parse(line):
    return [float(field) for field in line.split(",")]


with multiprocessing.get_context("fork").Pool(1) as pool:
    pool.map(parse, ["1,2", "3,N/A"])
