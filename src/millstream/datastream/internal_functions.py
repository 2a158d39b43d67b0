"""Classes between PyFlink's API and its Java side, and functions written in Java: only the names."""

from millstream.common.unsupported import JAVA, missing_class

_INSIDE = "it belongs to the inside of PyFlink, which works differently here"


def _inside(name: str) -> type:
    made: type = missing_class("millstream.datastream.functions", name, _INSIDE)
    return made


AsyncFunctionDescriptor = _inside("AsyncFunctionDescriptor")
FunctionWrapper = _inside("FunctionWrapper")
ReduceFunctionWrapper = _inside("ReduceFunctionWrapper")
InternalIterableAllWindowFunction = _inside("InternalIterableAllWindowFunction")
InternalIterableProcessAllWindowFunction = _inside("InternalIterableProcessAllWindowFunction")
InternalIterableProcessWindowFunction = _inside("InternalIterableProcessWindowFunction")
InternalIterableWindowFunction = _inside("InternalIterableWindowFunction")
InternalProcessAllWindowContext = _inside("InternalProcessAllWindowContext")
InternalProcessWindowContext = _inside("InternalProcessWindowContext")
InternalSingleValueAllWindowFunction = _inside("InternalSingleValueAllWindowFunction")
InternalSingleValueProcessAllWindowFunction = _inside("InternalSingleValueProcessAllWindowFunction")
InternalSingleValueProcessWindowFunction = _inside("InternalSingleValueProcessWindowFunction")
InternalSingleValueWindowFunction = _inside("InternalSingleValueWindowFunction")
InternalWindowFunction = _inside("InternalWindowFunction")
JavaFunctionWrapper = missing_class("millstream.datastream.functions", "JavaFunctionWrapper", JAVA)
SourceFunction = missing_class(
    "millstream.datastream.functions", "SourceFunction", f"{JAVA}; write a Source for env.from_source()"
)
