"""TimeDomain, where PyFlink has it."""

from millstream.operators.runtime.timers import TimeDomain

__all__ = ["TimeDomain"]
