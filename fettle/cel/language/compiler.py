"""Compiles an expression into a program, and evaluates that for one device at a time.

Each part of the tree becomes a closure over its children. What Kubernetes computes before it sees
a device is computed here too, and refused where it fails there. `judge` makes the variable
`device` from a row, and an `Outcome` from each way in which the program may end.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from fettle.api import quantities
from fettle.api.resource import DeviceAttribute
from fettle.cel.language import interpreter, syntax
from fettle.cel.language.checker import TYPE_NAMES, check, validate
from fettle.cel.language.environment import FUNCTIONS, STORED, Environment
from fettle.cel.language.interpreter import Qualifier
from fettle.cel.language.parser import parse
from fettle.cel.language.reads import driver, equations, needed, reads
from fettle.cel.language.syntax import (
    Again,
    Bind,
    Call,
    Construct,
    Expr,
    Fold,
    Ident,
    ListOf,
    Literal,
    MapOf,
    Refused,
    Select,
    Unsupported,
    children,
    dotted,
)
from fettle.cel.library import regexes, semver
from fettle.cel.library.conversions import FOLDED, type_name
from fettle.cel.library.messages import MESSAGES, NULL_VALUE
from fettle.cel.library.quantity import MutableQuantity
from fettle.cel.library.values import (
    BOOL,
    INT,
    Apply,
    CelError,
    Ended,
    Entries,
    Frame,
    Optional,
    Run,
    Undecidable,
    Value,
)
from fettle.cel.runtime.protocol import MATCH, NO_MATCH, Outcome, undecided, would_abort
from fettle.cel.runtime.rows import (
    LABELS,
    Amount,
    AttributeRead,
    DeviceRow,
    Equation,
    Field,
    Reads,
    Variable,
)

UNFORESEEN = "an error in Fettle itself"
"""How the reason begins if an expression led to an exception that nothing foresaw."""
_CHAINED = (syntax.INDEX, syntax.OPTIONAL_INDEX, syntax.OPTIONAL_SELECT)
_PATTERNS: dict[str, Apply] = {
    "matches": regexes.matches,
    "find": regexes.find,
    "findAll": regexes.find_all,
}
_MEASURED = {
    "distinct": (0, "list"),
    "flatten": (1, "int"),
    "sort": (0, "list"),
    "@sortByAssociatedKeys": (1, "list"),
}
"""The argument by whose size Kubernetes counts the cost of a call, and the type it must have."""
_APPLIED = frozenset({"_+_", "_-_", "_*_", "_/_", "_%_", syntax.NEGATE})


class Code(NamedTuple):
    """A compiled part: its closure, and its value if that needs no device."""

    run: Run
    constant: bool = False
    value: Value = None


class Program(NamedTuple):
    """A compiled expression; `tree` is kept for analysis."""

    run: Run
    slots: int
    tree: Expr

    def terms(self) -> list[Expr]:
        """The conditions that must all be true for the whole to be true."""
        return syntax.operands(self.tree, syntax.AND)

    def part(self, node: Expr) -> "Program":
        """A part of this program as a program of its own."""
        return Program(_Compiler().code(node).run, self.slots, node)


def build(source: str, environment: Environment = STORED) -> Program:
    """The program for an expression; raises Unsupported or Refused."""
    try:
        tree = parse(source)
        slots = check(tree, environment)
        validate(tree)
        if tree.type not in (BOOL, environment.attribute):
            raise Refused(f"it must evaluate to bool, not {tree.type}")
        return Program(_Compiler().code(tree).run, slots, tree)
    except RecursionError as error:
        raise Unsupported("it is nested too deeply") from error
    except (Undecidable, Ended) as reason:
        raise Unsupported(str(reason)) from reason


class _Compiler:
    def __init__(self) -> None:
        self._again: dict[int, Code] = {}
        self._weights: dict[int, int] = {}

    def code(self, node: Expr) -> Code:
        code = _COMPILE[type(node)](self, node)
        self._again[id(node)] = code
        return code

    def _weight(self, node: Expr) -> int:
        return _weight(node, self._weights)

    def _run(self, node: Expr) -> Run:
        return self.code(node).run

    # Names, literals and containers

    def literal(self, node: Literal) -> Code:
        return _constant(node.value)

    def ident(self, node: Ident) -> Code:
        if node.type.name == "type":
            return _constant(_type_named(node.name))
        if node.slot is not None:
            return Code(interpreter.variable(node.slot))
        return Code(_subject)

    def list_of(self, node: ListOf) -> Code:
        codes = [self.code(item) for item in node.items]
        run = interpreter.listing([code.run for code in codes], node.optional)
        return _folded(run, codes)

    def map_of(self, node: MapOf) -> Code:
        codes = [self.code(part) for part in children(node)]
        runs = [code.run for code in codes]
        optional = [entry.optional for entry in node.entries]
        run = interpreter.mapping(list(zip(runs[::2], runs[1::2], optional, strict=True)))
        return _folded(run, codes)

    def construct(self, node: Construct) -> Code:
        name = node.name.removeprefix(".")
        make = MESSAGES[name].make
        assert make is not None
        fields = [
            (entry.key.value, self._run(entry.value), entry.optional)
            for entry in node.entries
            if isinstance(entry.key, Literal)
        ]
        return Code(interpreter.constructing(make, fields))

    def again(self, node: Again) -> Code:
        run, cost = self._again[id(node.of)].run, self._weight(node.of)

        def rerun(frame: Frame) -> Value:
            frame.spend(cost)
            return run(frame)

        return Code(rerun)

    # Fields and indices

    def select(self, node: Select) -> Code:
        named = dotted(node)
        if named is not None and named[0].slot is None:  # else it is the field of a variable
            if node.type.name == "type" and (type_ := TYPE_NAMES.get(named[1])) is not None:
                return _constant(type_)
            if node.type == INT and named[1] == NULL_VALUE:
                return _constant(0)
        base, steps = self._steps(node)
        make = interpreter.presence if node.test else interpreter.chain
        return Code(make(base, steps))

    def _steps(self, node: Expr) -> tuple[Run, list[Qualifier]]:
        """A chain of fields and indices, from its start."""
        steps: list[Qualifier] = []
        while True:
            if isinstance(node, Select) and not (node.test and steps):
                steps.append(Qualifier(node.field))
                node = node.operand
            elif isinstance(node, Call) and node.function in _CHAINED:
                optional = node.function != syntax.INDEX
                steps.append(self._step(node.args[1], optional=optional))
                node = node.args[0]
            else:
                return self._run(node), steps[::-1]

    def chained(self, node: Call) -> Code:
        return Code(interpreter.chain(*self._steps(node)))

    def _step(self, key: Expr, *, optional: bool) -> Qualifier:
        code = self.code(key)
        if not code.constant:
            return Qualifier(None, code.run, optional)
        if type(code.value) not in interpreter.KEYS:
            raise Refused("invalid qualifier type")
        return Qualifier(code.value, None, optional)

    # Calls

    def call(self, node: Call) -> Code:
        special = _SPECIAL.get(node.function)
        if special is not None:
            return special(self, node)
        parts = node.args if node.target is None else [node.target, *node.args]
        codes = [self.code(part) for part in parts]
        runs = [code.run for code in codes]
        if node.function in _APPLIED:
            return Code(interpreter.applied(FUNCTIONS[node.function][0].apply, runs))
        if node.function in _PATTERNS and codes[1].constant and type(codes[1].value) is str:
            _fold(lambda _frame: regexes.compiled(codes[1].value))
            return Code(interpreter.with_constant_pattern(_PATTERNS[node.function], runs))
        if len(node.overloads) == 1 and node.function in _MEASURED:
            at, kind = _MEASURED[node.function]
            runs = interpreter.measured(runs, at, kind) if at < len(runs) else runs
        overloads = node.overloads if len(node.overloads) == 1 else FUNCTIONS[node.function]
        run = interpreter.call(node.function, overloads, runs)
        if node.function in FOLDED and codes[0].constant:
            return _constant(_fold(run))
        return Code(run)

    def logical(self, node: Call) -> Code:
        runs = [self._run(arg) for arg in node.args]
        return Code(interpreter.logical(runs, decisive=node.function == syntax.OR))

    def negation(self, node: Call) -> Code:
        return Code(interpreter.negation(self._run(node.args[0])))

    def either(self, node: Call) -> Code:
        test, yes, no = (self._run(arg) for arg in node.args)
        return Code(interpreter.conditional(test, yes, no))

    def equality(self, node: Call) -> Code:
        left, right = (self._run(arg) for arg in node.args)
        return Code(interpreter.equality(left, right, negated=node.function == syntax.DIFFERS))

    def ordering(self, node: Call) -> Code:
        left, right = (self._run(arg) for arg in node.args)
        return Code(interpreter.ordering(node.function, left, right))

    def membership(self, node: Call) -> Code:
        item, container = (self.code(arg) for arg in node.args)
        if container.constant and isinstance(container.value, list) and len(node.overloads) == 1:
            if not container.value:
                return _constant(False)
            run = interpreter.among_literals(item.run, container.value)
            if run is not None:
                return Code(run)
        return Code(interpreter.membership(item.run, container.run))

    def alternative(self, node: Call) -> Code:
        assert node.target is not None
        first, second = self._run(node.target), self._run(node.args[0])
        unwrapped = node.function == "orValue"
        return Code(interpreter.alternative(first, second, unwrapped=unwrapped))

    # Macros

    def fold(self, node: Fold) -> Code:
        range_, slots = self._run(node.range), node.slots
        body = self._run(node.body)
        filter_ = None if node.filter is None else self._run(node.filter)
        parts = [node.body] if node.filter is None else [node.body, node.filter]
        cost = 1 + sum(map(self._weight, parts))
        match node.kind:
            case "all" | "exists":
                decisive = node.kind == "exists"
                return Code(interpreter.quantified(range_, slots, body, cost, decisive=decisive))
            case "exists_one":
                return Code(interpreter.exactly_one(range_, slots, body, cost))
            case "list":
                return Code(interpreter.collected(range_, slots, body, filter_, cost))
            case _:
                entries = node.kind == "entries"
                return Code(interpreter.mapped(range_, slots, body, filter_, cost, entries=entries))

    def bind(self, node: Bind) -> Code:
        if node.value.type.name == "type":
            _type_named(node.variable)
        return Code(interpreter.bind(self._run(node.value), node.slot, self._run(node.body)))


def _subject(frame: Frame) -> Value:
    return frame.device


def _constant(value: Value) -> Code:
    return Code(interpreter.constant(value), constant=True, value=value)


def _folded(run: Run, codes: list[Code]) -> Code:
    """A container; made once if all its parts are constant."""
    if not all(code.constant for code in codes):
        return Code(run)
    try:
        return _constant(run(Frame(None, 0)))
    except CelError:
        return Code(run)  # an error only where it is evaluated


def _type_named(name: str) -> Value:
    """The type of this name. Kubernetes takes variables whose value is a type for names too."""
    found = TYPE_NAMES.get(name.removeprefix("."))
    if found is None:
        raise Refused(f"reference to undefined type: {name}")
    return found


def _fold(run: Run) -> Value:
    """Run a constant part while compiling, as Kubernetes does; raises Refused if that fails."""
    try:
        return run(Frame(None, 0))
    except CelError as error:
        raise Refused(str(error)) from error


def _weight(node: Expr, seen: dict[int, int]) -> int:
    """At least what Kubernetes counts for one evaluation of a part, loops aside."""
    if id(node) not in seen:
        parts = [node.range] if isinstance(node, Fold) else children(node)
        parts = [node.of] if isinstance(node, Again) else parts
        own = _COSTS.get(type(node), 1)
        seen[id(node)] = own + sum(_weight(part, seen) for part in parts)
    return seen[id(node)]


_COSTS: dict[type[Expr], int] = {ListOf: 10, MapOf: 30, Construct: 40, Call: 2}


_COMPILE: dict[type[Expr], Callable[[_Compiler, Any], Code]] = {
    Literal: _Compiler.literal,
    Ident: _Compiler.ident,
    Select: _Compiler.select,
    Call: _Compiler.call,
    ListOf: _Compiler.list_of,
    MapOf: _Compiler.map_of,
    Construct: _Compiler.construct,
    Fold: _Compiler.fold,
    Bind: _Compiler.bind,
    Again: _Compiler.again,
}
_SPECIAL: dict[str, Callable[[_Compiler, Call], Code]] = {
    syntax.AND: _Compiler.logical,
    syntax.OR: _Compiler.logical,
    syntax.NOT: _Compiler.negation,
    syntax.EITHER: _Compiler.either,
    syntax.EQUALS: _Compiler.equality,
    syntax.DIFFERS: _Compiler.equality,
    syntax.IN: _Compiler.membership,
    "or": _Compiler.alternative,
    "orValue": _Compiler.alternative,
    **dict.fromkeys(interpreter.ORDERINGS, _Compiler.ordering),
    **dict.fromkeys(_CHAINED, _Compiler.chained),
}


class Prepared(NamedTuple):
    """A parsed expression: either a program, or one outcome for every device."""

    reads: Reads
    program: Program | None
    outcome: Outcome | None
    variable: Variable = "device"
    driver: str = ""
    equations: tuple[Equation, ...] = ()
    needed: tuple[AttributeRead, ...] = ()


def prepare(expression: str, environment: Environment = STORED) -> Prepared:
    """Compile an expression; never raises for what is in it."""
    try:
        program = build(expression, environment)
        tree = program.tree
        return Prepared(
            reads(tree),
            program,
            None,
            environment.variable,
            driver(tree),
            equations(tree),
            needed(tree),
        )
    except Refused as refusal:
        return Prepared((), None, would_abort(f"it does not compile: {refusal}"))
    except Unsupported as reason:
        return Prepared((), None, undecided(str(reason)))
    except (RecursionError, MemoryError):
        return Prepared((), None, undecided("it is too large"))
    except Exception as error:  # a mistake of Fettle costs this outcome, never the worker
        return Prepared((), None, undecided(_unforeseen(error)))


def judge(prepared: Prepared, row: DeviceRow) -> Outcome:
    """What the expression says of a device; never raises for what is in either."""
    if prepared.program is None:
        assert prepared.outcome is not None
        return prepared.outcome
    try:
        result = evaluate(prepared, row)
    except (CelError, Ended) as error:
        return would_abort(str(error))
    except Undecidable as reason:
        return undecided(str(reason))
    except (RecursionError, MemoryError):
        return undecided("it takes too much memory")
    except Exception as error:  # as above
        return undecided(_unforeseen(error))
    while type(result) is Optional and result.values:
        (result,) = result.values
    if type(result) is not bool:
        return would_abort(f"it is of type {type_name(result)} on this device, not bool")
    return MATCH if result else NO_MATCH


def evaluate(prepared: Prepared, row: DeviceRow) -> Value:
    """What a program comes to on a row; raises what its parts raise."""
    assert prepared.program is not None
    make = _node_variable if prepared.variable == "node" else _device_variable
    return prepared.program.run(Frame(make(row), prepared.program.slots))


def _unforeseen(error: Exception) -> str:
    return f"{UNFORESEEN}: {type(error).__name__}: {error}"


def _device_variable(row: DeviceRow) -> Entries:
    """The variable `device`."""
    attributes = [(domain, name, _attribute(value)) for domain, name, value in row.attributes]
    capacity = [(domain, name, _capacity(value)) for domain, name, value in row.capacity]
    return Entries(
        {
            "driver": row.driver,
            "allowMultipleAllocations": row.multiple,
            "attributes": _domains(row, "attributes", attributes),
            "capacity": _domains(row, "capacity", capacity),
        }
    )


def _node_variable(row: DeviceRow) -> Entries:
    """The variable `node`."""
    labels = [(domain, name, _attribute(value)) for domain, name, value in row.attributes]
    return Entries({"labels": _domains(row, "attributes", labels).find(LABELS)})


def _domains(row: DeviceRow, field: Field, entries: list[tuple[str, str, Value]]) -> Entries:
    values: dict[str, dict[str, Value]] = {}
    present: dict[str, dict[str, bool]] = {}
    for domain, name, value in entries:
        inner = values.setdefault(domain, {})
        present.setdefault(domain, {})[name] = value is not None
        if value is not None:
            inner[name] = value
    asked = {domain: there for of, domain, there in row.domains if of == field}
    maps: dict[str, Value] = {
        domain: Entries(inner, None if row.whole else present[domain])
        for domain, inner in values.items()
    }
    return Entries(maps, None if row.whole else asked, lambda _key: Entries({}, _absent(row)))


def _absent(row: DeviceRow) -> dict[str, bool] | None:
    """What is known of a domain without values: nothing, unless the row is whole."""
    return None if row.whole else {}


def _attribute(attribute: DeviceAttribute | None) -> Value:
    if attribute is None:
        return None
    a = attribute
    for items in (a.ints, a.bools, a.strings):
        if items is not None:
            return list(items)
    if a.versions is not None:
        return [semver.parse(version) for version in a.versions]
    for value in (a.int_, a.bool_, a.string):
        if value is not None:
            return value
    if a.version is None:
        raise Undecidable("an attribute has no value of a known type")
    return semver.parse(a.version)


def _capacity(amount: Amount | None) -> Value:
    if amount is None:
        return None
    if isinstance(amount, float):
        raise Undecidable("a capacity is written as a fraction without quotes")
    try:
        return MutableQuantity(quantities.parse(str(amount).strip()))
    except (ValueError, quantities.Unsure) as error:
        raise Undecidable(f"a capacity cannot be read: {error}") from error
