"""PyFlink's import path of TimeDomain."""

from millstream.operators.runtime.timers import TimeDomain

__all__ = ["TimeDomain"]
