"""PyFlink's helpers; those that convert to and from Java exist only by name."""

from __future__ import annotations

from abc import ABC, abstractmethod

from millstream.common.typeinfo import TypeInformation
from millstream.common.unsupported import JAVA, missing_function

__all__ = [
    "ResultTypeQueryable",
    "convert_to_python_obj",
    "create_hadoop_configuration",
    "create_java_properties",
    "pickled_bytes_to_python_obj",
]


class ResultTypeQueryable(ABC):
    """An object that knows its output type."""

    @abstractmethod
    def get_produced_type(self) -> TypeInformation: ...


convert_to_python_obj = missing_function("convert_to_python_obj", JAVA)
create_hadoop_configuration = missing_function("create_hadoop_configuration", JAVA)
create_java_properties = missing_function("create_java_properties", JAVA)
pickled_bytes_to_python_obj = missing_function("pickled_bytes_to_python_obj", JAVA)
