"""Samples the CPU time of every thread of a Python process; see ../profile_job.py.

Python imports this file at its start if its folder is in ``PYTHONPATH``. Each process
writes its seconds by stack to a file in the folder ``SAMPLED_INTO``, so that a killed
process loses at most the last half second. The time of the garbage collector is
measured, not sampled.
"""

import _thread
import atexit
import gc
import json
import os
import sys
import threading
import time
from collections import defaultdict
from types import CodeType, FrameType

INTO = os.environ.get("SAMPLED_INTO", "")
EVERY_S = 0.01
SWITCH_S = 0.0002
WRITES_EVERY = 50
COLLECTOR, SAMPLER, NATIVE = "(collector)", "(sampler)", "(native)"


class Sampler:
    """Adds the CPU time of each thread to the stack that the thread is in."""

    def begin(self) -> None:
        """Begin without samples; called again in each forked process.

        A thread is seen where it lets others run. So it must do so often, or short
        pieces of work would count for the waiting that follows them.
        """
        sys.setswitchinterval(SWITCH_S)
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._open: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._collecting: defaultdict[int, int] = defaultdict(int)
        self._writing = _thread.allocate_lock()
        _thread.start_new_thread(self._run, ())  # unknown to ``threading``

    def collect(self, phase: str, info: dict[str, int]) -> None:
        """Measure a run of the garbage collector."""
        now = time.thread_time_ns()
        if phase == "start":
            self._began = now
        else:
            self._collecting[_thread.get_native_id()] += now - self._began
            stack = f"{COLLECTOR};generation {info['generation']}"
            self._seconds[stack] += (now - self._began) / 1e9

    def _run(self) -> None:
        own, count = _thread.get_native_id(), 0
        while True:
            time.sleep(EVERY_S)
            self._sample(own)
            count += 1
            if count % WRITES_EVERY == 0:
                self.write()

    def _sample(self, own: int) -> None:
        frames = sys._current_frames()
        threads = {t.native_id: t.ident for t in list(threading._active.values())}
        threads[os.getpid()] = threading.main_thread().ident  # changed by a fork
        for name in os.listdir("/proc/self/task"):
            tid = int(name)
            used = self._used(tid)
            if (spent := used - self._before.get(tid, 0)) <= 0:
                continue
            stack = SAMPLER if tid == own else stack_of(frames.get(threads.get(tid)))
            if stack.endswith("sitecustomize.py:collect"):
                continue  # until it is known how long the collector took
            if not stack:  # a library's own thread computes for the model, if any does
                found = (stack_of(frames.get(ident)) for ident in threads.values())
                stack = f"{NATIVE};{next(filter(computes, found), '')}"
            self._before[tid] = used
            spent -= self._collecting.pop(tid, 0)
            self._seconds[stack] += spent / 1e9

    def _used(self, tid: int) -> int:
        """Return a thread's CPU time so far, in nanoseconds."""
        try:
            if tid not in self._open:
                path = f"/proc/self/task/{tid}/schedstat"
                self._open[tid] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return int(os.pread(self._open[tid], 64, 0).split()[0])
        except (OSError, IndexError):  # it has ended
            if tid in self._open:
                os.close(self._open.pop(tid))
            return self._before.get(tid, 0)

    def write(self) -> None:
        """Write the seconds so far."""
        path = f"{INTO}/{os.getpid()}.json"
        with self._writing, open(f"{path}.new", "w") as file:
            json.dump([sys.orig_argv, dict(self._seconds)], file)
            file.flush()
            os.replace(f"{path}.new", path)


def stack_of(frame: FrameType | None) -> str:
    """Return the functions of a stack, the outermost first."""
    names = []
    while frame is not None:
        names.append(name_of(frame.f_code))
        frame = frame.f_back
    return ";".join(reversed(names))


NAMES: dict[CodeType, str] = {}


def name_of(code: CodeType) -> str:
    """Return the end of a function's path, and its name."""
    if code not in NAMES:
        NAMES[code] = f"{'/'.join(code.co_filename.split('/')[-5:])}:{code.co_name}"
    return NAMES[code]


def computes(stack: str) -> bool:
    """Return whether a thread runs the model."""
    return "decoder.py:_advance" in stack or "decoder.py:_do" in stack


if INTO:
    sampler = Sampler()
    gc.callbacks.append(sampler.collect)
    sampler.begin()
    atexit.register(sampler.write)
    os.register_at_fork(after_in_child=sampler.begin)
