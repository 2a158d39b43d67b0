"""Samples the stacks of a slot's main thread from another thread, while they are requested."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import CodeType, FrameType, FunctionType

from millstream.operating_system import ThreadActivity, system
from millstream.operators.codegen.code_writer import site_of
from millstream.operators.diagnostics.sampling import Stack, StackSamples

# Seconds between two samples: 25 samples per second take less than a hundredth of a core.
INTERVAL = 0.04
# Seconds after the last request until sampling ends.
_IDLE_SECONDS = 2.0
# The thread counts as busy if it uses the CPU for this fraction of a window, in seconds.
_WINDOW, _BUSY_FRACTION = 0.005, 0.5
_MAX_DEPTH = 100
# Maximum lines of code whose names are cached.
_MAX_LINES = 10_000
_PACKAGE = os.path.dirname(__file__) + os.sep
# The module where a slot's work begins; outer frames are the same in every stack.
_OUTERMOST = os.path.join("operators", "runtime", "slot_runner.py")


class StackSampler:
    """Samples one thread; implements `Sampler`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[int, StackSamples] = {}
        self._vertex: int | None = None
        self._thread = 0
        self._until = 0.0
        self._is_running = False
        # Names of lines by the code's id and the line number; holding the code retains its id.
        self._names: dict[tuple[int, int], tuple[CodeType, list[str]]] = {}

    def begin(self) -> None:
        self._thread = threading.get_ident()
        with self._lock:
            self._until = time.monotonic() + _IDLE_SECONDS
            if not self._is_running:
                self._is_running = True
                work = system.current_thread_activity()
                threading.Thread(target=self._sample, args=(work,), name="millstream-sampler", daemon=True).start()

    def enter(self, vertex: int | None) -> None:
        self._vertex = vertex

    def take(self) -> dict[int, StackSamples]:
        with self._lock:
            seen, self._seen = self._seen, {}
        return seen

    def _sample(self, work: ThreadActivity) -> None:
        while time.monotonic() <= self._until:
            time.sleep(INTERVAL - _WINDOW)
            used, before = work.seconds(), time.monotonic()
            time.sleep(_WINDOW)
            share = (work.seconds() - used) / (time.monotonic() - before)
            works = share > _BUSY_FRACTION or work.is_runnable()
            frame, vertex = sys._current_frames().get(self._thread), self._vertex
            if frame is not None and vertex is not None:
                key = works, self._stack(frame)
                with self._lock:
                    seen = self._seen.setdefault(vertex, {})
                    seen[key] = seen.get(key, 0) + 1
        with self._lock:
            self._is_running = False

    def _stack(self, innermost: FrameType) -> Stack:
        """Return a readable stack, starting where the slot's work begins."""
        names: list[str] = []
        frame: FrameType | None = innermost
        while frame is not None and len(names) < _MAX_DEPTH and not _is_outermost(frame.f_code):
            line = id(frame.f_code), frame.f_lineno
            known = self._names.get(line)
            if known is None:
                if len(self._names) >= _MAX_LINES:
                    self._names.clear()
                known = self._names[line] = frame.f_code, _names(frame.f_code.co_filename, frame)
            names += known[1]
            frame = frame.f_back
        names.reverse()
        return tuple(names)


def _is_outermost(code: CodeType) -> bool:
    return code.co_name == "run" and code.co_filename.endswith(_OUTERMOST)


def _names(path: str, frame: FrameType) -> list[str]:
    """Return the names of a frame: millstream's by module, the user's by file and line, a loop's with its operator."""
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
