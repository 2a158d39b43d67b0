"""Connectors: one package per external system, with rows for the DataStream API and Arrow batches for the Table API.

A package has its client, its reader and its writer; `table` modules adapt them to SQL. The names that programs import
are in `millstream.datastream.connectors`, as PyFlink has them.
"""
