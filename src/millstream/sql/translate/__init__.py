"""From what is planned to operators: adds to a program what runs a query.

What one kind of node needs is in a module of its own, which is loaded when a plan has such a node: a query begins
without the operators that it does not use.
"""

from millstream.sql.translate.translator import Translator, kinds_of

__all__ = ["Translator", "kinds_of"]
