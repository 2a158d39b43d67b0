"""Names for types that only a user's program knows.

A plain `Any` in a signature means that a type is missing. These aliases name the kind of user value instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

# A record, a field of a record, or a value in state.
Value: TypeAlias = Any
# A key that a stream is partitioned by.
Key: TypeAlias = Any
# A function of the user, or an object with the methods of one.
UserCode: TypeAlias = Any
# A parsed JSON document, checked where it is read.
Json: TypeAlias = Any
# An object of a library without types, or of any of several libraries with the same methods.
LibraryObject: TypeAlias = Any
# An object of the JVM behind Py4J, which resolves names at run time.
JavaObject: TypeAlias = Any

if TYPE_CHECKING:
    # Defaults of type variables came with Python 3.13; checkers know them from here, and nothing is installed for it.
    from typing_extensions import TypeVar

    # The argument of a method, or its result.
    T = TypeVar("T", default=Any)
    R = TypeVar("R", default=Any)
    OUT = TypeVar("OUT", default=Any)
    KEY = TypeVar("KEY", default=Any)
    W = TypeVar("W", default=Any)
    ACC = TypeVar("ACC", default=Any)
    # What comes out of streams and functions: a stream of bool is one of int.
    T_co = TypeVar("T_co", default=Any, covariant=True)
    A_co = TypeVar("A_co", default=Any, covariant=True)
    B_co = TypeVar("B_co", default=Any, covariant=True)
    KEY_co = TypeVar("KEY_co", default=Any, covariant=True)
    W_co = TypeVar("W_co", default=Any, covariant=True)
    OUT_co = TypeVar("OUT_co", default=Any, covariant=True)
    # Input of functions and sinks: a function of int accepts bool.
    T_contra = TypeVar("T_contra", default=Any, contravariant=True)
    IN_contra = TypeVar("IN_contra", default=Any, contravariant=True)
    IN1_contra = TypeVar("IN1_contra", default=Any, contravariant=True)
    IN2_contra = TypeVar("IN2_contra", default=Any, contravariant=True)
    KEY_contra = TypeVar("KEY_contra", default=Any, contravariant=True)
    W_contra = TypeVar("W_contra", default=Any, contravariant=True)
else:
    from typing import TypeVar

    T, R, OUT, KEY, W, ACC = (TypeVar(name) for name in ("T", "R", "OUT", "KEY", "W", "ACC"))
    T_co, A_co, B_co, KEY_co, W_co, OUT_co = (
        TypeVar(name, covariant=True) for name in ("T_co", "A_co", "B_co", "KEY_co", "W_co", "OUT_co")
    )
    T_contra, IN_contra, IN1_contra, IN2_contra, KEY_contra, W_contra = (
        TypeVar(name, contravariant=True)
        for name in ("T_contra", "IN_contra", "IN1_contra", "IN2_contra", "KEY_contra", "W_contra")
    )
