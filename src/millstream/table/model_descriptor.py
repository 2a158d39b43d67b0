"""ModelDescriptor: a CREATE MODEL without SQL."""

from __future__ import annotations

from millstream.sql.catalog.tables import CatalogModel
from millstream.table.schema import Schema
from millstream.table.table_descriptor import option_key, option_value

__all__ = ["ModelDescriptor"]


class ModelDescriptor:
    """Describes a model: input and output schema, provider and options.

    Example:
        >>> text = Schema.new_builder().column("text", "STRING").build()
        >>> label = Schema.new_builder().column("label", "STRING").build()
        >>> model = ModelDescriptor.for_provider("openai").input_schema(text).output_schema(label)
        >>> model.option("task", "chat").comment("rates reviews").build().get_options()
        {'provider': 'openai', 'task': 'chat'}
    """

    def __init__(
        self, inputs: Schema | None, outputs: Schema | None, options: dict[str, str], comment: str | None
    ) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._options = dict(options)
        self._comment = comment

    @staticmethod
    def for_provider(provider: str) -> ModelDescriptor.Builder:
        """Return a builder for a provider."""
        return ModelDescriptor.Builder().option("provider", provider)

    def get_options(self) -> dict[str, str]:
        """Return the options."""
        return dict(self._options)

    def get_input_schema(self) -> Schema | None:
        """Return the input schema, or None."""
        return self._inputs

    def get_output_schema(self) -> Schema | None:
        """Return the output schema, or None."""
        return self._outputs

    def get_comment(self) -> str | None:
        """Return the comment."""
        return self._comment

    def as_model(self) -> CatalogModel:
        """Return the declaration for a catalog."""
        inputs, outputs = (() if s is None else s.as_table({}).columns for s in (self._inputs, self._outputs))
        return CatalogModel(inputs, outputs, dict(self._options), self._comment)

    def _parts(self) -> tuple[object, ...]:
        return self._inputs, self._outputs, tuple(sorted(self._options.items())), self._comment

    def __str__(self) -> str:
        options = ",\n".join(f"  '{k}' = '{v}'" for k, v in self._options.items())
        return f"{self._inputs or ''}\n{self._outputs or ''}\nCOMMENT '{self._comment or ''}'\nWITH (\n{options}\n)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelDescriptor) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    class Builder:
        """Builds a model descriptor."""

        def __init__(self) -> None:
            self._inputs: Schema | None = None
            self._outputs: Schema | None = None
            self._options: dict[str, str] = {}
            self._comment: str | None = None

        def input_schema(self, input_schema: Schema) -> ModelDescriptor.Builder:
            """Set the input schema."""
            self._inputs = input_schema
            return self

        def output_schema(self, output_schema: Schema) -> ModelDescriptor.Builder:
            """Set the output schema."""
            self._outputs = output_schema
            return self

        def option(self, key: object, value: object) -> ModelDescriptor.Builder:
            """Set an option."""
            self._options[option_key(key)] = option_value(value)
            return self

        def comment(self, comment: str) -> ModelDescriptor.Builder:
            """Set the comment."""
            self._comment = comment
            return self

        def build(self) -> ModelDescriptor:
            """Return the descriptor."""
            return ModelDescriptor(self._inputs, self._outputs, self._options, self._comment)
