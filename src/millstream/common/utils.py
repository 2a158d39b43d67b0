"""What PyFlink builds on Java objects: only the name."""

from millstream.common.missing import JAVA, missing_class

__all__ = ["JavaObjectWrapper"]

JavaObjectWrapper = missing_class(__name__, "JavaObjectWrapper", JAVA)
