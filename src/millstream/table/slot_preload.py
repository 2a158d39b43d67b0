"""What slots load that run SQL: the daemon that they are forked from loads it once, so that each of them need not."""

from __future__ import annotations

import contextlib
from importlib import import_module

import millstream.connectors.files.table_reader  # noqa: F401
from millstream.sql.functions.table import functions
from millstream.sql.translate.translator import MAKERS

for _name in ("pyarrow.compute", "pyarrow.parquet"):
    import_module(_name)
# Arrow looks for it when it is given numbers, and loads it if it is there.
with contextlib.suppress(ImportError):
    import_module("pandas")

# The functions of the language, and the operators.
functions()
for _module in sorted({module for module, _ in MAKERS.values()}):
    import_module(f"millstream.sql.translate.{_module}")
