"""Avro: PyFlink's names, which can be imported and say what is missing when they are used."""

from millstream.common.missing import missing_names

AVRO = (
    "there is no Avro here yet; use JSON, CSV or Parquet, or read Avro with a package such as fastavro in a function "
    "of your own"
)

__getattr__ = missing_names(
    __name__,
    AVRO,
    "AvroBulkWriters AvroInputFormat AvroRowDeserializationSchema AvroRowSerializationSchema AvroSchema "
    "GenericRecordAvroTypeInfo",
)
