"""A load of known size on one NVIDIA GPU: kernels that keep every SM busy for a time that was asked for.

Run: CUDA_VISIBLE_DEVICES=GPU-… python benchmarks/gpu_load.py --on-ms 300 --period-ms 1000 --seconds 15

Nothing but the driver's own library is needed. Prints `ready` once it holds the card, waits for a line,
then prints after each period how long its kernels ran so far, in seconds.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence

LIBRARY = "libcuda.so.1"
THREADS = 1_024
LONGEST_LAUNCH_MS = 100
"""Short enough for a display's watchdog, long enough that a launch costs nothing."""

_MULTIPROCESSORS = 16

SPIN = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 spin_ns)
{
    .reg .u64 %t<4>;
    .reg .pred %p;
    ld.param.u64 %t0, [spin_ns];
    mov.u64 %t1, %globaltimer;
AGAIN:
    mov.u64 %t2, %globaltimer;
    sub.u64 %t3, %t2, %t1;
    setp.lt.u64 %p, %t3, %t0;
    @%p bra AGAIN;
    ret;
}
"""


class CudaError(Exception):
    """A call of the driver failed."""


class Gpu:
    """The first visible GPU, through `libcuda`."""

    def __init__(self, memory_mib: int) -> None:
        """Hold a context and that much memory."""
        try:
            self._cuda = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise CudaError(f"{LIBRARY} cannot be loaded: {error}") from error
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._spin = ctypes.c_void_p()
        count = ctypes.c_int()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._call("cuDeviceGetAttribute", ctypes.byref(count), ctypes.c_int(_MULTIPROCESSORS), device)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(SPIN))
        self._call("cuModuleGetFunction", ctypes.byref(self._spin), module, ctypes.c_char_p(b"spin"))
        if memory_mib:
            held = ctypes.c_uint64()
            self._call("cuMemAlloc_v2", ctypes.byref(held), ctypes.c_size_t(memory_mib << 20))
        self._blocks = count.value

    def spin(self, milliseconds: int) -> float:
        """Keep every SM busy; the seconds it took, by our own clock."""
        begun = time.monotonic()
        while milliseconds > 0:
            span_ms = min(milliseconds, LONGEST_LAUNCH_MS)
            self._launch(span_ms * 1_000_000)
            self._call("cuCtxSynchronize")
            milliseconds -= span_ms
        return time.monotonic() - begun

    def _launch(self, spin_ns: int) -> None:
        value = ctypes.c_uint64(spin_ns)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        one, none = ctypes.c_uint(1), ctypes.c_uint(0)
        grid = (ctypes.c_uint(self._blocks), one, one)
        block = (ctypes.c_uint(THREADS), one, one)
        stream, extra = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuLaunchKernel", self._spin, *grid, *block, none, stream, parameters, extra)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            raise CudaError(f"{name} answered {code}; see CUresult in cuda.h")


def beats(
    seconds: float,
    period_ms: int,
    offset_ms: int,
    *,
    now_s: Callable[[], float] = time.time,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[None]:
    """Yields at each begin of a period of the wall clock, shifted by an offset, until the time is up."""
    end_s = now_s() + seconds
    period_s, offset_s = period_ms / 1_000, offset_ms / 1_000
    beat = math.ceil((now_s() - offset_s) / period_s)
    while (begin_s := beat * period_s + offset_s) < end_s:
        wait(max(0.0, begin_s - now_s()))
        yield
        # A load without a pause ends its period a little late: that is no reason to leave the next out.
        beat = max(beat + 1, math.floor((now_s() - offset_s) / period_s))


def main(argv: Sequence[str] | None = None) -> int:
    """Drive the load; the exit code is 1 when the driver refuses."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--on-ms", type=int, default=300)
    parser.add_argument("--period-ms", type=int, default=1_000)
    parser.add_argument("--offset-ms", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--memory-mib", type=int, default=256)
    args = parser.parse_args(argv)
    try:
        gpu = Gpu(args.memory_mib)
        print("ready", flush=True)
        sys.stdin.readline()
        busy_s = 0.0
        for _ in beats(args.seconds, args.period_ms, args.offset_ms):
            busy_s += gpu.spin(args.on_ms)
            print(f"{busy_s:.6f}", flush=True)
    except CudaError as error:
        print(f"gpu_load: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
