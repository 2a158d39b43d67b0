"""How driver and slots talk when slots stay: frames over sockets, who may say what when, and the slot's loop.

Nothing here knows Spark. `millstream.spark.resident_epochs` brings the processes that meet here.
"""
