"""`python -m trainmaster.gpu.self_test KIND DEVICE`: a matrix product and copies on one device, in JSON.

A process of its own: a device that hangs or crashes it does not touch the manager. KIND is `slot`, with a
number and how many cores a slot has (`3x2`), or `gpu`, with a UUID. A GPU is asked through libcuda alone, by
a kernel in PTX.

Both compute in single precision, so that their rates can be compared. What a GPU makes of lower precision
by its tensor cores is not measured.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from trainmaster.gpu.driver import FAKE_GPUS

SLOT_SIZE, GPU_SIZE = 256, 2048
"""Rows of the matrices: a product on a core is over before another process gets its turn there."""
COPIED = 64 << 20
TRIES, TRIED_S = 4, 0.2
"""A product or a copy is tried so often, and for so long."""
MIB = 1 << 20
UNUSABLE = frozenset({2, 3, 34, 46, 100, 101, 209, 218, 221, 222, 803, 804})
"""Answers of the driver that say that the test cannot run here, or now (2: no memory is free, 46: another
program has the GPU for itself), not that the GPU is broken."""
TILE = 8
"""Rows and columns of the product that a thread makes ..."""
BLOCK = 16
"""... and rows and columns of threads in a block."""
UNROLLED = 4


def kernel() -> str:
    """PTX of C = A' B for square matrices of single precision, whose size is a multiple of TILE x BLOCK.

    Both are read row by row (A is given transposed), four numbers at a time, and each number is used TILE
    times: most of the time goes into multiplying.
    """
    half = range(0, TILE, 4)
    both = [(row, column) for row in range(TILE) for column in range(TILE)]
    clear = [f"mov.f32 %c{row * TILE + column}, 0f00000000;" for row, column in both]
    loads = [
        f"ld.global.v4.f32 {{{', '.join(f'%{name}{at + n}' for n in range(4))}}}, [%{place}+{at * 4}];"
        for name, place in (("a", "rd1"), ("b", "rd2"))
        for at in half
    ]
    products = [
        f"fma.rn.f32 %c{row * TILE + column}, %a{row}, %b{column}, %c{row * TILE + column};"
        for row, column in both
    ]
    step = [*loads, "add.u64 %rd1, %rd1, %rd5;", "add.u64 %rd2, %rd2, %rd5;", *products]
    stores = [
        line
        for row in range(TILE)
        for line in (
            *(
                f"st.global.v4.f32 [%rd3+{at * 4}],"
                f" {{{', '.join(f'%c{row * TILE + at + n}' for n in range(4))}}};"
                for at in half
            ),
            "add.u64 %rd3, %rd3, %rd5;",
        )
    ]
    return f"""
.version 6.4
.target sm_50
.address_size 64
.visible .entry product(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
{{
  .reg .pred %p<2>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<10>;
  .reg .f32 %a<{TILE}>, %b<{TILE}>, %c<{TILE * TILE}>;
  ld.param.u64 %rd1, [pa];
  ld.param.u64 %rd2, [pb];
  ld.param.u64 %rd3, [pc];
  ld.param.u32 %r1, [pn];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
  cvta.to.global.u64 %rd3, %rd3;
  mov.u32 %r2, %ctaid.y;
  mov.u32 %r3, %tid.y;
  mad.lo.u32 %r4, %r2, {BLOCK}, %r3;
  mul.lo.u32 %r4, %r4, {TILE};
  mov.u32 %r5, %ctaid.x;
  mov.u32 %r6, %tid.x;
  mad.lo.u32 %r7, %r5, {BLOCK}, %r6;
  mul.lo.u32 %r7, %r7, {TILE};
  mul.wide.u32 %rd5, %r1, 4;
  mul.wide.u32 %rd6, %r4, 4;
  add.u64 %rd1, %rd1, %rd6;
  mul.wide.u32 %rd7, %r7, 4;
  add.u64 %rd2, %rd2, %rd7;
  cvt.u64.u32 %rd8, %r4;
  mad.lo.u64 %rd3, %rd8, %rd5, %rd3;
  add.u64 %rd3, %rd3, %rd7;
  {" ".join(clear)}
  mov.u32 %r10, 0;
LOOP:
  {" ".join(step * UNROLLED)}
  add.u32 %r10, %r10, {UNROLLED};
  setp.lt.u32 %p1, %r10, %r1;
  @%p1 bra LOOP;
  {" ".join(stores)}
  ret;
}}
"""


class NotTested(Exception):
    """The test cannot run here: why, without a full stop."""


class Broken(Exception):
    """The device failed the test: why, without a full stop."""


def matrices(size: int) -> tuple[Any, Any]:
    """Small whole numbers: single precision adds them up exactly, in whatever order."""
    import numpy as np

    row, column = np.arange(size)[:, None], np.arange(size)
    first, second = (row * 7 + column * 13) % 5, (row * 5 + column * 3) % 7
    return first.astype(np.float32), second.astype(np.float32)


def is_product(first: Any, second: Any, found: Any) -> bool:
    """Whether it is their product, by sums that need no product: C·1 = A·(B·1), and likewise 1·C."""
    import numpy as np

    one, two, three = (each.astype(np.float64) for each in (first, second, found))
    by_row = (three.sum(axis=1) == (one * two.sum(axis=1)).sum(axis=1)).all()
    by_column = (three.sum(axis=0) == (two * one.sum(axis=0)[:, None]).sum(axis=0)).all()
    return bool(by_row and by_column)


def fastest(act: Callable[[], object]) -> float:
    """Seconds of the fastest of some tries: others may compute meanwhile."""
    first = time.perf_counter()
    best, tries = float("inf"), 0
    while tries < TRIES or time.perf_counter() - first < TRIED_S:
        begun = time.perf_counter()
        act()
        best, tries = min(best, time.perf_counter() - begun), tries + 1
    return best


def result_of(
    size: int, products_s: Iterable[float], copy_s: float, copied: int
) -> dict[str, object]:
    """`products_s`: the seconds of a product, of each of those that were made at the same time."""
    rates = [2 * size**3 / max(taken, 1e-9) for taken in products_s]
    return {
        "is_tested": True,
        "is_right": True,
        "mflop_s": round(sum(rates) / 1e6),
        "copy_mib_s": round(copied / MIB / max(copy_s, 1e-9), 1),
    }


# -- CPU slots ---------------------------------------------------------------------------------------------


def slot_result(number: int, cores: int) -> dict[str, object]:
    """On as many of the cores that this process may use as a slot has, one thread on each."""
    own = sorted(os.sched_getaffinity(0))
    used = {own[(number * cores + each) % len(own)] for each in range(cores)}
    os.sched_setaffinity(0, used)
    for library in ("OPENBLAS", "MKL", "OMP", "BLIS"):  # read when numpy is loaded
        os.environ[f"{library}_NUM_THREADS"] = "1"
    import numpy as np

    first, second = matrices(SLOT_SIZE)

    def product_s(core: int) -> float:
        """Each thread has its own fastest time, so that others on one core do not make all of them slow."""
        os.sched_setaffinity(0, {core})  # of this thread
        found = np.empty_like(first)
        taken = fastest(lambda: np.matmul(first, second, out=found))
        if not is_product(first, second, found):
            raise Broken("a matrix product came out wrong")
        return taken

    with ThreadPoolExecutor(len(used)) as threads:
        products_s = [*threads.map(product_s, used)]
    source = np.arange(COPIED // 8, dtype=np.uint64)
    target = np.zeros_like(source)
    copy_s = fastest(lambda: np.copyto(target, source))
    if not (source == target).all():
        raise Broken("a copy came out wrong")
    return result_of(SLOT_SIZE, products_s, copy_s, COPIED)


# -- GPUs --------------------------------------------------------------------------------------------------


class Cuda:
    """The driver's calls on its first device."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as problem:
            raise NotTested(f"libcuda cannot be loaded ({problem})") from None
        context = ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self("cuCtxSetCurrent", context)

    def __call__(self, name: str, *said: Any) -> None:
        code = getattr(self._cuda, name)(*said)
        if code in UNUSABLE:
            raise NotTested(f"{name} answered {code}")
        if code:
            raise Broken(f"{name} answered {code}")

    def memory(self, size: int) -> ctypes.c_uint64:
        found = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(found), ctypes.c_size_t(size))
        return found

    def put(self, target: ctypes.c_uint64, source: Any) -> None:
        self("cuMemcpyHtoD_v2", target, source.ctypes.data_as(ctypes.c_void_p), _size(source))

    def get(self, target: Any, source: ctypes.c_uint64) -> None:
        self("cuMemcpyDtoH_v2", target.ctypes.data_as(ctypes.c_void_p), source, _size(target))

    def product(self, first: Any, second: Any) -> tuple[Any, float]:
        """Of two matrices, by the kernel, and the seconds that it takes."""
        import numpy as np

        module, function, found = ctypes.c_void_p(), ctypes.c_void_p(), np.empty_like(first)
        text = ctypes.c_char_p(kernel().encode())
        self("cuModuleLoadData", ctypes.byref(module), text)
        self("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(b"product"))
        places = [self.memory(first.nbytes) for _ in range(3)]
        self.put(places[0], np.ascontiguousarray(first.T))
        self.put(places[1], second)
        said = [*places, ctypes.c_uint32(len(first))]
        given = (ctypes.c_void_p * len(said))(*(ctypes.addressof(each) for each in said))
        blocks = len(first) // (TILE * BLOCK)

        def multiply() -> None:
            self(
                "cuLaunchKernel",
                function,
                *(blocks, blocks, 1, BLOCK, BLOCK, 1),
                0,
                None,
                given,
                None,
            )
            self("cuCtxSynchronize")

        multiply()  # the first one loads it
        product_s = fastest(multiply)
        self.get(found, places[2])
        return found, product_s


def _size(array: Any) -> ctypes.c_size_t:
    return ctypes.c_size_t(array.nbytes)


def gpu_result(uuid: str) -> dict[str, object]:
    folder = os.environ.get(FAKE_GPUS)
    if folder:
        raise NotTested("its driver is played by a folder")
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    import numpy as np

    cuda = Cuda()
    first, second = matrices(GPU_SIZE)
    found, product_s = cuda.product(first, second)
    if not is_product(first, second, found):
        raise Broken("a matrix product came out wrong")
    source = np.arange(COPIED // 8, dtype=np.uint64)
    target = np.zeros_like(source)
    there, beside = cuda.memory(COPIED), cuda.memory(COPIED)

    def copy() -> None:
        cuda.put(there, source)
        cuda("cuMemcpyDtoD_v2", beside, there, _size(source))
        cuda.get(target, beside)
        cuda("cuCtxSynchronize")

    copy_s = fastest(copy)
    if not (source == target).all():
        raise Broken("a copy came out wrong")
    return result_of(GPU_SIZE, [product_s], copy_s, 2 * COPIED)


def tested(arguments: Sequence[str]) -> dict[str, object]:
    kind, device = arguments
    try:
        if kind == "gpu":
            return gpu_result(device)
        number, _, cores = device.partition("x")
        return slot_result(int(number), int(cores or 1))
    except NotTested as problem:
        return {"is_tested": False, "why": str(problem)}
    except Broken as problem:
        return {"is_tested": True, "is_right": False, "why": str(problem)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(tested(sys.argv[1:])) + "\n")
