"""Imports the modules that slots of SQL jobs need: the daemon that forks them imports this once for all."""

from __future__ import annotations

import contextlib
from importlib import import_module

import millstream.connectors.files.table  # noqa: F401
from millstream.sql.functions.table import functions
from millstream.sql.translate.registry import TRANSLATIONS

for _name in ("pyarrow.compute", "pyarrow.parquet", "millstream.sql.operators.rank.match_recognize"):
    import_module(_name)
# Arrow imports pandas, if it is installed, when it converts numbers.
with contextlib.suppress(ImportError):
    import_module("pandas")

functions()
for _load in TRANSLATIONS.values():
    _load()
