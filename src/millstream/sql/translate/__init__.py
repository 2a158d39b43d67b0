"""Translation of a plan into operators of a program.

Each family of nodes has a module, imported when a plan first has one of its nodes: a query starts without the operators
that it does not use.
"""

from millstream.sql.translate.registry import translation_of
from millstream.sql.translate.translator import Translator, arrow_types

__all__ = ["Translator", "arrow_types", "translation_of"]
