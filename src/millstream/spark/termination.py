"""How a slot's process is told to end: SIGTERM breaks off user code, and what is open is closed on the way out."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

_asked = threading.Event()


def expect() -> None:
    """From here on SIGTERM raises SystemExit in the main thread, whatever runs there."""
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGALRM, _terminate)
    sys.unraisablehook = _unraisable


def ignore() -> None:
    """Let what closes things finish."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def is_asked() -> bool:
    """Tell whether this process was told to end."""
    return _asked.is_set()


def _unraisable(unraisable: Any) -> None:
    if not isinstance(unraisable.exc_value, SystemExit):
        sys.__unraisablehook__(unraisable)


def _terminate(_: int, interrupted: FrameType | None) -> None:
    """Break off whatever runs, unless that is what is done at the end.

    An exception raised while Python runs a destructor or a weakref callback is swallowed, so it is raised again
    until it has got through.
    """
    _asked.set()
    while interrupted is not None:
        if interrupted.f_code is ignore.__code__:
            return
        interrupted = interrupted.f_back
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    raise SystemExit(0)
