"""Importing this package aliases `import pyflink...` to millstream, in this process and in its workers."""

from millstream.common import pyflink_names as _names
from millstream.pyflink.version import __version__

__all__ = ["__version__"]

_names.install()
