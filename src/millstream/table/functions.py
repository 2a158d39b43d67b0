"""PyFlink's aggregate functions in Python, which are only names: SQL aggregates are vectorized."""

from __future__ import annotations

from millstream.common.constants import MAX_LONG_VALUE, MIN_LONG_VALUE
from millstream.common.unsupported import missing_names

__all__ = ["MAX_LONG_VALUE", "MIN_LONG_VALUE"]

__getattr__ = missing_names(
    __name__,
    "it is internal to PyFlink; call SUM, COUNT and the others in SQL or on a column",
    "AvgAggFunction Count1AggFunction CountAggFunction DecimalSum0AggFunction FirstValueAggFunction "
    "FirstValueWithRetractAggFunction FloatSum0AggFunction IntSum0AggFunction LastValueAggFunction "
    "LastValueWithRetractAggFunction ListAggFunction ListAggWithRetractAggFunction "
    "ListAggWsWithRetractAggFunction MaxAggFunction MaxWithRetractAggFunction MinAggFunction "
    "MinWithRetractAggFunction Sum0AggFunction SumAggFunction SumWithRetractAggFunction "
    "WelfordM2AggFunction ",
)
