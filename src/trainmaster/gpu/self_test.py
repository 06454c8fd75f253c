"""`python -m trainmaster.gpu.self_test KIND DEVICE`: a matrix product and copies on one device, in JSON.

A process of its own: a device that hangs or crashes it does not touch the manager. KIND is `slot`, with the
number of a core, or `gpu`, with a UUID. A GPU is asked through libcuda alone, by a kernel in PTX: not seen on
hardware.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trainmaster.gpu.driver import FAKE_GPUS

SIZE = 512
"""Rows of the matrices."""
COPIED = 64 << 20
COPIES = 4
MIB = 1 << 20
BLOCK = 256
UNUSABLE = frozenset({2, 3, 34, 46, 100, 101, 209, 218, 221, 222, 803, 804})
"""Answers of the driver that say that the test cannot run here, or now (2: no memory is free, 46: another
program has the GPU for itself), not that the GPU is broken."""
KERNEL = b"""
.version 6.4
.target sm_50
.address_size 64
.visible .entry product(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
{
  .reg .pred %p<2>;
  .reg .b32 %r<13>;
  .reg .b64 %rd<11>;
  ld.param.u64 %rd1, [pa];
  ld.param.u64 %rd2, [pb];
  ld.param.u64 %rd3, [pc];
  ld.param.u32 %r1, [pn];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
  cvta.to.global.u64 %rd3, %rd3;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  div.u32 %r6, %r5, %r1;
  rem.u32 %r7, %r5, %r1;
  mul.lo.u32 %r8, %r6, %r1;
  mul.wide.u32 %rd4, %r8, 4;
  add.u64 %rd5, %rd1, %rd4;
  mul.wide.u32 %rd6, %r7, 4;
  add.u64 %rd7, %rd2, %rd6;
  mul.wide.u32 %rd8, %r1, 4;
  mov.u32 %r9, 0;
  mov.u32 %r10, 0;
LOOP:
  ld.global.u32 %r11, [%rd5];
  ld.global.u32 %r12, [%rd7];
  mad.lo.u32 %r9, %r11, %r12, %r9;
  add.u64 %rd5, %rd5, 4;
  add.u64 %rd7, %rd7, %rd8;
  add.u32 %r10, %r10, 1;
  setp.lt.u32 %p1, %r10, %r1;
  @%p1 bra LOOP;
  mul.wide.u32 %rd9, %r5, 4;
  add.u64 %rd10, %rd3, %rd9;
  st.global.u32 [%rd10], %r9;
  ret;
}
"""
"""Each thread makes one element of the product of two square matrices of 32-bit numbers."""


class NotTested(Exception):
    """The test cannot run here: why, without a full stop."""


class Broken(Exception):
    """The device failed the test: why, without a full stop."""


def matrices(size: int = SIZE) -> tuple[Any, Any]:
    """Small whole numbers, so that every way to add them up gives the same."""
    row, column = np.indices((size, size), dtype=np.uint32)
    return (row * 7 + column * 13) % 17, (row * 5 + column * 3) % 19


def is_product(first: Any, second: Any, found: Any) -> bool:
    """Whether it is their product, by sums that need no product: C·1 = A·(B·1), and likewise 1·C."""
    one, two, three = (each.astype(np.int64) for each in (first, second, found))
    by_row = (three.sum(axis=1) == (one * two.sum(axis=1)).sum(axis=1)).all()
    by_column = (three.sum(axis=0) == (two * one.sum(axis=0)[:, None]).sum(axis=0)).all()
    return bool(by_row and by_column)


def fastest(copy: Callable[[], object]) -> float:
    """Seconds of the fastest of a few copies: others may compute meanwhile."""
    times = []
    for _ in range(COPIES):
        begun = time.perf_counter()
        copy()
        times.append(time.perf_counter() - begun)
    return min(times)


def result_of(product_s: float, copy_s: float, copied: int) -> dict[str, object]:
    speed = copied / MIB / max(copy_s, 1e-9)
    return {
        "is_tested": True,
        "is_right": True,
        "product_ms": round(product_s * 1000, 3),
        "copy_mib_s": round(speed, 1),
    }


# -- CPU slots ---------------------------------------------------------------------------------------------


def slot_result(number: int) -> dict[str, object]:
    """On one of the cores that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})
    first, second = matrices()
    begun = time.perf_counter()
    found = first.astype(np.float64) @ second.astype(np.float64)
    product_s = time.perf_counter() - begun
    if not is_product(first, second, found):
        raise Broken("a matrix product came out wrong")
    source = np.arange(COPIED // 8, dtype=np.uint64)
    target = np.zeros_like(source)
    copy_s = fastest(lambda: np.copyto(target, source))
    if not (source == target).all():
        raise Broken("a copy came out wrong")
    return result_of(product_s, copy_s, COPIED)


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

    def product(self, first: Any, second: Any) -> Any:
        """Of two matrices, by the kernel."""
        module, kernel, found = ctypes.c_void_p(), ctypes.c_void_p(), np.empty_like(first)
        self("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(KERNEL))
        self("cuModuleGetFunction", ctypes.byref(kernel), module, ctypes.c_char_p(b"product"))
        places = [self.memory(first.nbytes) for _ in range(3)]
        self.put(places[0], first)
        self.put(places[1], second)
        count = ctypes.c_uint32(len(first))
        said = [*places, count]
        given = (ctypes.c_void_p * len(said))(*(ctypes.addressof(each) for each in said))
        shape = (first.size // BLOCK, 1, 1, BLOCK, 1, 1)
        self("cuLaunchKernel", kernel, *shape, 0, None, given, None)
        self("cuCtxSynchronize")
        self.get(found, places[2])
        return found


def _size(array: Any) -> ctypes.c_size_t:
    return ctypes.c_size_t(array.nbytes)


def gpu_result(uuid: str) -> dict[str, object]:
    folder = os.environ.get(FAKE_GPUS)
    if folder:
        raise NotTested("its driver is played by a folder")
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    cuda = Cuda()
    first, second = (np.ascontiguousarray(each, dtype=np.uint32) for each in matrices())
    begun = time.perf_counter()
    found = cuda.product(first, second)
    product_s = time.perf_counter() - begun
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
    return result_of(product_s, copy_s, 2 * COPIED)


def tested(arguments: Sequence[str]) -> dict[str, object]:
    kind, device = arguments
    try:
        return slot_result(int(device)) if kind == "slot" else gpu_result(device)
    except NotTested as problem:
        return {"is_tested": False, "why": str(problem)}
    except Broken as problem:
        return {"is_tested": True, "is_right": False, "why": str(problem)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(tested(sys.argv[1:])) + "\n")
