"""Samples the thread that does a slot's work, from another thread of its process, while somebody wants to know."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import CodeType, FrameType, FunctionType

from millstream.operators.codegen.code_writer import site_of
from millstream.operators.diagnostics.sampling import Stack, StackSamples

# Time between two looks, in seconds: 25 in a second cost less than a hundredth of a core.
INTERVAL = 0.04
# So long after it was last wanted it ends.
_PATIENCE = 2.0
# Whether it works is seen over so many seconds; from so much of them on, it does.
_WINDOW, _WORKED = 0.005, 0.5
_DEEPEST = 100
# The names of so many lines are remembered.
_MOST_LINES = 10_000
_PACKAGE = os.path.dirname(__file__) + os.sep
# Where a slot's work begins; what is around it is the same in every stack.
_OUTERMOST = os.path.join("operators", "runtime", "slot_runner.py")


class StackSampler:
    """Looks at one thread; follows `Sampler`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[int, StackSamples] = {}
        self._vertex: int | None = None
        self._thread = 0
        self._until = 0.0
        self._is_running = False
        # What a line is called, by its code and number; the code is held, so that no other gets its place.
        self._names: dict[tuple[int, int], tuple[CodeType, list[str]]] = {}

    def begin(self) -> None:
        self._thread = threading.get_ident()
        with self._lock:
            self._until = time.monotonic() + _PATIENCE
            if not self._is_running:
                self._is_running = True
                # Asked for here, by the thread itself: of one that has ended its clock must not be asked for.
                work = _Work(time.pthread_getcpuclockid(self._thread), threading.get_native_id())
                threading.Thread(target=self._look, args=(work,), name="millstream-sampler", daemon=True).start()

    def enter(self, vertex: int | None) -> None:
        self._vertex = vertex

    def take(self) -> dict[int, StackSamples]:
        with self._lock:
            seen, self._seen = self._seen, {}
        return seen

    def _look(self, work: _Work) -> None:
        while time.monotonic() <= self._until:
            time.sleep(INTERVAL - _WINDOW)
            used, before = work.seconds(), time.monotonic()
            time.sleep(_WINDOW)
            share = (work.seconds() - used) / (time.monotonic() - before)
            works = share > _WORKED or work.is_runnable()
            frame, vertex = sys._current_frames().get(self._thread), self._vertex
            if frame is not None and vertex is not None:
                key = works, self._stack(frame)
                with self._lock:
                    seen = self._seen.setdefault(vertex, {})
                    seen[key] = seen.get(key, 0) + 1
        with self._lock:
            self._is_running = False

    def _stack(self, innermost: FrameType) -> Stack:
        """Return a stack as a person reads it, from where the slot's work begins."""
        names: list[str] = []
        frame: FrameType | None = innermost
        while frame is not None and len(names) < _DEEPEST and not _is_outermost(frame.f_code):
            line = id(frame.f_code), frame.f_lineno
            known = self._names.get(line)
            if known is None:
                if len(self._names) >= _MOST_LINES:
                    self._names.clear()
                known = self._names[line] = frame.f_code, _names(frame.f_code.co_filename, frame)
            names += known[1]
            frame = frame.f_back
        names.reverse()
        return tuple(names)


class _Work:
    """Tells whether a thread works, or would if it were given a processor."""

    def __init__(self, clock: int, thread: int) -> None:
        self._clock = clock
        self._status = f"/proc/self/task/{thread}/stat"

    def seconds(self) -> float:
        """Return for how long it has had a processor."""
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            # It has ended.
            return 0.0

    def is_runnable(self) -> bool:
        """Tell whether it waits for a processor, and for nothing else."""
        try:
            with open(self._status) as file:
                return file.read().rpartition(")")[2].split()[0] == "R"
        except OSError:
            return False


def _is_outermost(code: CodeType) -> bool:
    return code.co_name == "run" and code.co_filename.endswith(_OUTERMOST)


def _names(path: str, frame: FrameType) -> list[str]:
    """Return what a function is called, ours by module, the user's by file and line; of a loop also what it does."""
    if path.startswith(_PACKAGE):
        module = path.removeprefix(_PACKAGE).removesuffix(".py").replace(os.sep, ".")
        return [f"millstream.{module}.{frame.f_code.co_qualname}"]
    if not path.startswith("<millstream "):
        return [_of_user(path, frame.f_lineno, frame.f_code.co_qualname)]
    loop = f"millstream: the loop of {path.removeprefix('<millstream ').rpartition(' ')[0]}"
    site = site_of(frame, frame.f_lineno)
    if site is None:
        return [loop]
    inlined = [f.__code__ for f, _ in site.inlined if isinstance(f, FunctionType)]
    names = [_of_user(code.co_filename, code.co_firstlineno, code.co_qualname) for code in inlined[:1]]
    return [*names, f"millstream: {type(site.operator).__name__}", loop]


def _of_user(path: str, line: int, function: str) -> str:
    return f"{os.path.basename(path)}:{line} {function}"
