"""What PyFlink builds on Java objects: only the name."""

from millstream.common.unsupported import JAVA, missing_class

__all__ = ["JavaObjectWrapper"]

JavaObjectWrapper = missing_class(__name__, "JavaObjectWrapper", JAVA)
