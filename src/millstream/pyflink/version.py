"""The PyFlink version of the supported programs; millstream's own is `millstream.__version__`."""

__version__ = "2.3.0"
