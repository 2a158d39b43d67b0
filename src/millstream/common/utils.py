"""JavaObjectWrapper, which is not supported."""

from millstream.common.unsupported import JAVA, missing_class

__all__ = ["JavaObjectWrapper"]

JavaObjectWrapper = missing_class(__name__, "JavaObjectWrapper", JAVA)
