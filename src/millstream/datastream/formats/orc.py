"""ORC: a name of PyFlink's, which can be imported and says what is missing when it is used."""

from millstream.common.missing import missing_names

__getattr__ = missing_names(
    __name__, "there is no ORC here yet; write Parquet with ParquetBulkWriters", "OrcBulkWriters"
)
