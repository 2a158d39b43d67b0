"""PyFlink's table helpers, which are names only."""

from __future__ import annotations

from millstream.common.unsupported import missing_names

__getattr__ = missing_names(
    __name__,
    "it is internal to PyFlink",
    "arrow_to_pandas pandas_to_arrow pickled_bytes_to_python_converter to_expression_jarray "
    "tz_convert_from_internal tz_convert_to_internal",
)
