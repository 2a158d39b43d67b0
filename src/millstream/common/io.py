"""InputFormat: only the name; files are read with FileSource."""

from millstream.common.missing import JAVA, missing_class

__all__ = ["InputFormat"]

InputFormat = missing_class(__name__, "InputFormat", f"{JAVA}; read files with FileSource")
