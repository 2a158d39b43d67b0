"""Chains: the operators of one vertex, compiled into one function per input.

Each operator's `code` writes its lines with a `CodeWriter` (`codegen/code_writer.py`), which names variables, inlines
simple functions and builds the function. docs/architecture.md shows such a function ("The generated loop").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from millstream.common.aliases import Value
from millstream.common.call_site import labelled
from millstream.common.inferred_types import ANYTHING, within
from millstream.common.typeinfo import TypeInformation
from millstream.operators.base import Operator
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.codegen.coercion_codegen import coerce
from millstream.operators.codegen.object_reuse import detached, keeps_nothing
from millstream.operators.codegen.range_vectorizer import Columns, vectorized_in_bounds
from millstream.operators.functions.output_tag import OutputTag
from millstream.operators.runtime.blocks import Layout
from millstream.operators.runtime.partitioners import KeyPartitioner
from millstream.operators.runtime.record_writer import Edge, EdgeWriter
from millstream.operators.sink import InvokeOperator
from millstream.operators.source import SourceOperator


@dataclass
class ChainNode:
    """An operator of a chain, and its outputs.

    Attributes:
        id: the operator's id: 32 hexadecimal digits, the same in every run of the same program.
        name: the name that users see.
        uid: the user's uid, or None.
        type_info: the declared type of the main output, None if any value conforms.
        timestamped: whether the records it emits have timestamps.
        made_at: the program line that created it, as `job.py:12`, if known.
        outputs: its chained operators and outgoing edges.
    """

    operator: Operator
    id: str
    name: str
    uid: str | None
    type_info: TypeInformation | None
    timestamped: bool
    made_at: str | None = None
    outputs: list[ChainOutput] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Its name and program line, for errors: `'Map' (made at job.py:12)`."""
        return labelled(self.name, self.made_at)


@dataclass
class ChainOutput:
    """An output of a chain node.

    Attributes:
        tag: its side output, None for the main output.
        tag_type: the declared type of that side output.
        node: the index of the chained operator, None for an edge.
        edge: the id of the outgoing edge.
    """

    tag: str | None
    tag_type: TypeInformation | None
    node: int | None = None
    edge: int = -1


class _Later:
    """A function that is compiled after the one that calls it."""

    run: Callable[..., None]


class ChainCompiler:
    """Compiles a chain into functions over batches of records."""

    def __init__(self, nodes: list[ChainNode], writers: dict[int, EdgeWriter], inlining: bool = True) -> None:
        self._nodes = nodes
        self._writers = writers
        self._inlining = inlining
        self._pending: list[tuple[_Later, ChainNode]] = []
        self._infers_types = False
        for node in nodes:
            node.operator.declared_type = node.type_info

    def infer_types(self, in_edges: Sequence[Edge]) -> None:
        """Report all record types that the functions will send to the record writers, which then choose their layouts.

        Args:
            in_edges: the input edges; none for a source.
        """
        self._infers_types = True
        if not in_edges:
            self._source_code()
        for edge in in_edges:
            for many_new_keys in (False, True):
                self._input_code(edge, edge.layout, many_new_keys)
        for node in self._nodes:
            if node.operator.emits_later:
                self._rest_code(node)
        while self._pending:
            self._rest_code(self._pending.pop()[1])
        self._infers_types = False
        for writer in self._writers.values():
            writer.choose_layout()

    def source_function(self) -> Callable[[Iterable[Value]], None]:
        """Return the function over a batch of source records."""
        w = self._source_code()
        self._compile_pending()
        return w.build("batch")

    def column_function(self, loop: Callable[[Iterable[Value]], None]) -> Callable[[Iterable[Value]], None]:
        """Return a function over a batch of source records that is vectorized where possible, else uses a loop."""
        head = self._nodes[0]
        numbers = head.operator.numbers if isinstance(head.operator, SourceOperator) else None
        if numbers is None or not self._inlining:
            return loop
        w = CodeWriter(head.name)
        columns, node = Columns(w, numbers), head
        while (following := self._next_in_chain(node, columns.value)) is not None and following.operator.column_code(
            columns
        ):
            node = following
        if node is head:
            return loop
        line, value = columns.head()
        with w.block(line):
            self._outputs(w, node, value)
        self._compile_pending()
        return vectorized_in_bounds(w.build("batch"), loop, numbers)

    def _next_in_chain(self, node: ChainNode, value: Var) -> ChainNode | None:
        """Return the one node that receives all output of another unchanged, or None."""
        if len(node.outputs) != 1 or node.outputs[0].node is None or node.outputs[0].tag is not None:
            return None
        following = self._nodes[node.outputs[0].node]
        expected = node.type_info.inferred_type() if node.type_info is not None else ANYTHING
        fits = not is_encoded(node, [following]) or (expected is not None and within(value.inferred_type, expected))
        return following if fits else None

    def _source_code(self) -> CodeWriter:
        w = CodeWriter(self._nodes[0].name, inlining=self._inlining)
        with w.block("for x in batch:"):
            self._node(w, self._nodes[0], 0, Var("x", None, detached=True), None)
        return w

    def input_function(
        self, edge: Edge, layout: Layout, many_new_keys: bool, index: int = 0
    ) -> Callable[[Iterable[Value]], None]:
        """Return the function over the content of a block of a layout that arrived over an edge.

        An edge leads to the first operator; a former edge may have led to another one.
        """
        w = self._input_code(edge, layout, many_new_keys, index)
        self._compile_pending()
        return w.build("batch")

    def _input_code(self, edge: Edge, layout: Layout, many_new_keys: bool, index: int = 0) -> CodeWriter:
        head = self._nodes[index]
        w = CodeWriter(head.name, many_new_keys, self._inlining)
        with layout.loop(w) as (key, value):
            inferred_type = (edge.type_info.inferred_type() if edge.type_info is not None else None) or ANYTHING
            value = replace(
                value,
                inferred_type=inferred_type if layout.pieces is None else layout.pieces.inferred_type(inferred_type),
            )
            self._node(w, head, edge.input_index, value, _key(w, edge, head.operator, key, value))
        return w

    def record_function(self, input_index: int, timestamped: bool, keyed: bool) -> Callable[[Iterable[Value]], None]:
        """Return the function over records for the first operator, each with its timestamp and key."""
        w = CodeWriter(self._nodes[0].name, inlining=self._inlining)
        with w.block("for x, t, k in batch:"):
            value = Var("x", "t" if timestamped else None, detached=True)
            self._node(w, self._nodes[0], input_index, value, Key("k", hashable=True) if keyed else None)
        self._compile_pending()
        return w.build("batch")

    def emit_function(self, node: ChainNode) -> Callable[..., None]:
        """Return the function over what a node emits outside of the loop, with its timestamp."""
        function = self._rest(node)
        self._compile_pending()
        return function

    def _compile_pending(self) -> None:
        while self._pending:
            later, node = self._pending.pop()
            later.run = self._rest(node)

    def _rest(self, node: ChainNode) -> Callable[..., None]:
        return self._rest_code(node).build("batch, t=None")

    def _rest_code(self, node: ChainNode) -> CodeWriter:
        w = CodeWriter(f"{node.name} (later)", inlining=self._inlining)
        with w.block("for y in batch:", node.operator, "y"):
            self._outputs(w, node, Var("y", "t", detached=False))
        return w

    def _node(self, w: CodeWriter, node: ChainNode, input_index: int, value: Var, key: Key | None) -> None:
        w.next_operator(node.operator, input_index, value, key)
        node.operator.code(w, input_index, value, key, lambda out: self._outputs(w, node, out))

    def _outputs(self, w: CodeWriter, node: ChainNode, value: Var) -> None:
        if w.is_deep:
            # Too deep for one function: the rest becomes another.
            later = _Later()
            self._pending.append((later, node))
            w.line(f"{w.bind(later, 'later')}.run(({value.name},), {value.timestamp})")
            return
        if not node.operator.tags_outputs:
            self._output(w, node, None, value)
            return
        name = value.name
        tag_class = w.bind(OutputTag, "tag_class")
        with w.block(f"if {name}.__class__ is tuple and len({name}) == 2 and {name}[0].__class__ is {tag_class}:"):
            for tag in dict.fromkeys(o.tag for o in node.outputs if o.tag is not None):
                with w.block(f"if {name}[0].tag_id == {tag!r}:"):
                    out = w.var()
                    w.line(f"{out} = {name}[1]")
                    self._output(w, node, tag, value.renamed(out, False))
        with w.block("else:"):
            self._output(w, node, None, value)

    def _output(self, w: CodeWriter, node: ChainNode, tag: str | None, value: Var) -> None:
        outputs = [o for o in node.outputs if o.tag == tag]
        type_info = node.type_info if tag is None else next((o.tag_type for o in outputs if o.tag_type), None)
        encoded = is_encoded(node, [None if o.node is None else self._nodes[o.node] for o in outputs])
        value = coerce(w, node.operator, type_info if encoded else None, value)
        # Edges first: a chained operator may modify the value.
        outputs.sort(key=lambda o: o.node is not None)
        for i, output in enumerate(outputs):
            last = i == len(outputs) - 1
            own_value = value if last else value.shared()
            if output.node is not None:
                following = self._nodes[output.node]
                if node.operator.emits_state and not _is_read_only(following.operator):
                    own_value = detached(w, own_value.shared())
                elif not last:
                    own_value = detached(w, own_value)
                self._node(w, following, 0, own_value, None)
            elif self._infers_types:
                self._writers[output.edge].learn(w, own_value)
            else:
                self._writers[output.edge].code(w, own_value, node.operator)


def is_encoded(node: ChainNode, following: list[ChainNode | None]) -> bool:
    """Return whether the output of a node is encoded: only then it must conform to its type.

    As in PyFlink: output of sources, output to other vertices, sinks, state or several consumers, and records that are
    assigned timestamps. Within a chain, values pass unchanged from one function to the next.
    """
    if len(node.outputs) != 1 or node.operator.inputs == 0 or node.operator.emits_state:
        return True
    return any(n is None or n.operator.encodes_input for n in following)


def _key(w: CodeWriter, edge: Edge, operator: Operator, block_key: Key | None, value: Var) -> Key | None:
    """Return the key of a record that arrived over an edge, None if the operator needs none."""
    if not isinstance(edge.partitioner, KeyPartitioner) or not operator.uses_key:
        return None
    if block_key is not None:
        return block_key
    # The key is a member of the record.
    key = Key("k", hashable=False)
    edge.partitioner.key_code(
        w, value.name, key.name, operator, value.inferred_type if value.condition is None else ANYTHING
    )
    return key


def _is_read_only(operator: Operator) -> bool:
    """Return whether an operator neither modifies its records nor passes them to one that could."""
    return isinstance(operator, InvokeOperator) and keeps_nothing(operator.function.function)
