"""The version of PyFlink whose programs run here; millstream's own is `millstream.__version__`."""

__version__ = "2.3.0"
