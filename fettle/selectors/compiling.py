"""An expression, parsed and type-checked, as a program that one device at a time is judged by.

Runs in the worker. cel-python's parser gives the tree; its evaluator is not used, since it checks
no types, sets no bounds and differs from Kubernetes' where it matters. Each part of the tree
becomes a closure over its children. What is not surely understood is `Unsupported`; what
Kubernetes' compiler surely refuses is `Refused`.
"""

import re
from typing import Any, NamedTuple

from lark import Token

from fettle.selectors import functions, operators, texts, values
from fettle.selectors.functions import Function
from fettle.selectors.loops import LOOPS
from fettle.selectors.parsing import arguments_of, parse, unwrapped
from fettle.selectors.signatures import (
    BOOL,
    DEVICE,
    DOUBLE,
    DYN,
    INT,
    QUANTITY,
    STRING,
    Signature,
    Type,
    choose,
    is_open,
    list_of,
    map_of,
    unites,
)
from fettle.selectors.sources import MAX_NESTING, Unsupported, string_value
from fettle.selectors.values import CelError, Frame, Run, Undecidable, Value


class Refused(Exception):
    """What Kubernetes' own compiler refuses; `str()` says why."""


class Code(NamedTuple):
    """A compiled part: its type, what it does, and its value where it is a literal."""

    type: Type
    run: Run
    literal: Value = None
    constant: bool = False


class Program(NamedTuple):
    """A compiled expression; `tree` is kept for analysis."""

    run: Run
    slots: int
    tree: Any


def build(source: str) -> Program:
    """The program for an expression; raises Unsupported or Refused."""
    tree = parse(source)
    compiler = _Compiler()
    try:
        code = compiler.code(tree)
    except RecursionError as error:
        raise Unsupported("it is nested too deeply") from error
    except Undecidable as reason:
        raise Unsupported(str(reason)) from reason
    compiler.finish()
    if code.type not in (BOOL, DYN):
        raise Refused(f"it must evaluate to bool, not {code.type}")
    return Program(code.run, compiler.slots, tree)


_FIELDS = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": map_of(STRING, map_of(STRING, DYN)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
}
_KEYWORDS = frozenset({"false", "in", "null", "true"})
_PRIMITIVE = (BOOL, INT, DOUBLE, STRING)
_RESERVED = frozenset(
    re.findall(
        r"\w+",
        "as break const continue else false for function if import in let loop package namespace "
        "null return true var void while",
    )
)


class _Compiler:
    """Compiles one tree; `_scope` maps the variables of enclosing macros to slot and type."""

    def __init__(self) -> None:
        self.slots = 0
        self._scope: dict[str, tuple[int, Type]] = {}
        self._depth = 0
        self._called: set[str] = set()

    def finish(self) -> None:
        if self._called & functions.FORM_DEPENDENT and self._called & functions.FORM_CHANGING:
            raise Unsupported("isInteger or asInteger together with other quantity functions")

    def code(self, tree: Any) -> Code:
        tree = unwrapped(tree)
        compile_ = getattr(self, f"_{tree.data}", None)
        if compile_ is None:
            raise Unsupported(f"{str(tree.data).replace('_', ' ')} is not supported")
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise Unsupported(f"it is nested deeper than {MAX_NESTING}")
        code: Code = compile_(tree)
        self._depth -= 1
        return code

    def _boolean(self, tree: Any) -> Code:
        code = self.code(tree)
        if code.type not in (BOOL, DYN):
            raise Refused(f"expected bool but found {code.type}")
        return code

    def _choose(self, what: str, signatures: tuple[Signature, ...], *codes: Code) -> Type:
        chosen = choose(signatures, [code.type for code in codes])
        if chosen is None:
            types = ", ".join(str(code.type) for code in codes)
            raise Refused(f"found no matching overload for {what} applied to ({types})")
        return chosen[1]

    # Literals

    def _literal(self, tree: Any) -> Code:
        token: Token = tree.children[0]
        if token.type in ("STRING_LIT", "MLSTRING_LIT"):
            return _constant(STRING, string_value(token))
        if token.type == "BOOL_LIT":
            return _constant(BOOL, str(token) == "true")
        if token.type == "INT_LIT":
            number = int(token, 16 if "x" in token else 10)
            if not -(2**63) <= number < 2**63:
                raise Refused(f"invalid int literal {token}")
            return _constant(INT, number)
        if token.type == "FLOAT_LIT":
            return _constant(DOUBLE, values.finite(float(token)))
        raise Unsupported(f"the literal {str(token)[:20]} is not supported")

    def _list_lit(self, tree: Any) -> Code:
        codes = [self.code(child) for child in arguments_of(tree, 0)]
        if not codes:
            raise Unsupported("an empty list is only supported beside == and !=")
        element = codes[0].type
        for code in codes[1:]:
            if is_open(code.type) != is_open(element) or not unites(code.type, element):
                raise Refused(f"a list of {element} also holds {code.type}")
            if code.type != element:
                raise Unsupported("a list of unlike types is not supported")
        return Code(
            list_of(element),
            operators.listing([code.run for code in codes]),
            [code.literal for code in codes],
            all(code.constant for code in codes) and element in _PRIMITIVE,
        )

    # Names and fields

    def _ident(self, tree: Any) -> Code:
        name = str(tree.children[0])
        if name in self._scope:
            slot, type_ = self._scope[name]
            return Code(type_, operators.variable(slot))
        if name == "device":
            return Code(DEVICE, operators.whole_device)
        raise Unsupported(f"the name {name!r} is not supported")

    def _member_dot(self, tree: Any) -> Code:
        owner, name = self.code(tree.children[0]), _field(tree.children[1])
        if owner.type == DEVICE:
            if name not in _FIELDS:
                raise Refused(f"undefined field {name!r}")
            return Code(_FIELDS[name], lambda frame: frame.device[name])
        if owner.type.name not in ("map", "dyn"):
            raise Refused(f"{owner.type} does not support field selection")
        return Code(owner.type.of[1] if owner.type.of else DYN, operators.select(owner.run, name))

    def _member_index(self, tree: Any) -> Code:
        owner, key = self.code(tree.children[0]), self.code(tree.children[1])
        type_ = self._choose("_[_]", operators.INDEXING, owner, key)
        return Code(type_, operators.look(owner.run, key.run))

    def _has(self, arguments: list[Any]) -> Code:
        tree = unwrapped(arguments[0]) if len(arguments) == 1 else None
        if tree is None or tree.data != "member_dot":
            raise Unsupported("has() of something that is no field")
        owner, name = self.code(tree.children[0]), _field(tree.children[1])
        if owner.type.name not in ("map", "dyn"):
            raise Unsupported(f"has() of a field of {owner.type}")
        if owner.type == _FIELDS["attributes"] or owner.type == _FIELDS["capacity"]:
            raise Unsupported("has() of a domain")
        return Code(BOOL, operators.has(owner.run, name))

    # Operators

    def _conditionalor(self, tree: Any) -> Code:
        return self._logical(tree, "conditionalor", decisive=True)

    def _conditionaland(self, tree: Any) -> Code:
        return self._logical(tree, "conditionaland", decisive=False)

    def _logical(self, tree: Any, rule: str, *, decisive: bool) -> Code:
        terms: list[Any] = []
        while tree.data == rule and len(tree.children) == 2:
            terms.append(tree.children[1])
            tree = tree.children[0]
        runs = [self._boolean(term).run for term in [tree, *reversed(terms)]]
        return Code(BOOL, operators.logical(runs, decisive=decisive))

    def _expr(self, tree: Any) -> Code:
        condition = self._boolean(tree.children[0])
        first, second = self.code(tree.children[1]), self.code(tree.children[2])
        type_ = self._choose("_?_:_", operators.EITHER, first, second)
        return Code(type_, operators.conditional(condition.run, first.run, second.run))

    def _relation(self, tree: Any) -> Code:
        operator = tree.children[0].data
        first, second = tree.children[0].children[0], tree.children[1]
        if operator in ("relation_eq", "relation_ne"):
            return self._equality(first, second, negated=operator == "relation_ne")
        left, right = self.code(first), self.code(second)
        if operator == "relation_in":
            return self._membership(left, right)
        self._choose(str(operator), operators.ORDERED, left, right)
        return Code(BOOL, operators.ordering(str(operator), left.run, right.run))

    def _equality(self, first: Any, second: Any, *, negated: bool) -> Code:
        left, right = self._comparable(first), self._comparable(second)
        self._choose("_==_", operators.EQUALITY, left, right)
        return Code(BOOL, operators.equality(left.run, right.run, negated=negated))

    def _comparable(self, tree: Any) -> Code:
        tree = unwrapped(tree)
        if tree.data == "list_lit" and not tree.children:
            return Code(list_of(DYN), lambda _frame: [])
        return self.code(tree)

    def _membership(self, left: Code, right: Code) -> Code:
        self._choose("_in_", operators.MEMBERSHIP, left, right)
        return Code(BOOL, operators.membership(left.run, right.run, literals=right.constant))

    def _addition(self, tree: Any) -> Code:
        operator = str(tree.children[0].data)
        signatures, apply = operators.ARITHMETIC[operator]
        left, right = self.code(tree.children[0].children[0]), self.code(tree.children[1])
        type_ = self._choose(operator, signatures, left, right)
        return Code(type_, operators.arithmetic(apply, left.run, right.run))

    _multiplication = _addition

    def _unary(self, tree: Any) -> Code:
        signs: list[str] = []
        while tree.data == "unary" and len(tree.children) == 2:
            signs.append(str(tree.children[0].data))
            tree = tree.children[1]
        if len(set(signs)) > 1 or signs.count("unary_neg") > 1:
            raise Unsupported("these unary operators together are not supported")
        if signs[0] == "unary_neg":
            return self._negation(tree)
        if len(signs) % 2 == 0:  # Kubernetes' parser drops pairs of `!`, whatever they are of
            return self.code(tree)
        return Code(BOOL, operators.negation(self._boolean(tree).run))

    def _negation(self, tree: Any) -> Code:
        inner = self.code(tree)
        type_ = self._choose("-_", operators.NEGATIVE, inner)
        return Code(type_, operators.negative(inner.run))

    # Calls

    def _ident_arg(self, tree: Any) -> Code:
        name, arguments = str(tree.children[0]), arguments_of(tree, 1)
        if name == "has":
            return self._has(arguments)
        function = functions.GLOBALS.get(name)
        if function is None:
            raise Unsupported(f"the function {name!r} is not supported")
        return self._call(name, function, [self.code(argument) for argument in arguments])

    def _member_dot_arg(self, tree: Any) -> Code:
        owner, name, arguments = tree.children[0], str(tree.children[1]), arguments_of(tree, 2)
        if name in LOOPS:
            return self._macro(name, owner, arguments)
        if name == "bind" and self._is_name(owner, "cel"):
            return self._bind(arguments)
        function = functions.METHODS.get(name)
        if function is None:
            raise Unsupported(f"the method {name!r} is not supported")
        codes = [self.code(owner), *(self.code(argument) for argument in arguments)]
        return self._call(name, function, codes)

    def _call(self, name: str, function: Function, codes: list[Code]) -> Code:
        if any(code.type == DEVICE for code in codes):
            raise Unsupported("the device as a whole is not supported as an argument")
        self._called.add(name)
        signatures = tuple(overload.signature for overload in function.overloads)
        chosen = choose(signatures, [code.type for code in codes])
        if chosen is None:
            types = ", ".join(str(code.type) for code in codes)
            if not function.complete:
                raise Unsupported(f"{name} of ({types}) is not supported")
            raise Refused(f"found no matching overload for {name} applied to ({types})")
        indices, type_ = chosen
        run = operators.call(name, function, indices, [code.run for code in codes])
        if name in functions.CONVERSIONS:
            _try(run, literal=codes[0].constant)
        if name == "matches" and codes[1].constant:
            texts.compiled(codes[1].literal)
        return Code(type_, run)

    # Macros

    def _macro(self, name: str, owner: Any, arguments: list[Any]) -> Code:
        if len(arguments) != 2:
            raise Unsupported(f"{name} with {len(arguments)} arguments is not supported")
        range_ = self.code(owner)
        if range_.type.name not in ("list", "map", "dyn"):
            raise Refused(f"{range_.type} cannot be the range of {name}")
        element = range_.type.of[0] if range_.type.of else DYN
        slot, body = self._scoped(arguments[0], element, arguments[1])
        if name != "map" and body.type not in (BOOL, DYN):
            raise Refused(f"expected bool but found {body.type}")
        loop = LOOPS[name](range_.run, slot, body.run)
        types = {"map": list_of(body.type), "filter": list_of(element)}
        return Code(types.get(name, BOOL), loop)

    def _bind(self, arguments: list[Any]) -> Code:
        if len(arguments) != 3:
            raise Unsupported("cel.bind() takes a name, a value and an expression")
        value = self.code(arguments[1])
        slot, body = self._scoped(arguments[0], value.type, arguments[2])
        return Code(body.type, operators.bind(value.run, slot, body.run))

    def _scoped(self, variable: Any, type_: Type, body: Any) -> tuple[int, Code]:
        """A slot for a macro's variable, and the body compiled with it in scope."""
        tree = unwrapped(variable)
        if tree.data != "ident" or str(tree.children[0]) in _RESERVED:
            raise Unsupported("a macro's variable must be a plain name")
        if type_ == DEVICE:
            raise Unsupported("the device as a variable is not supported")
        name, slot = str(tree.children[0]), self.slots
        self.slots += 1
        outer = self._scope
        self._scope = {**outer, name: (slot, type_)}
        code = self.code(body)
        self._scope = outer
        return slot, code

    def _is_name(self, tree: Any, name: str) -> bool:
        tree = unwrapped(tree)
        return tree.data == "ident" and tree.children[0] == name and name not in self._scope


def _constant(type_: Type, value: Value) -> Code:
    return Code(type_, lambda _frame: value, value, constant=True)


def _field(token: Token) -> str:
    if token in _KEYWORDS:
        raise Unsupported(f"the keyword {str(token)!r} as a name")
    return str(token)


def _try(run: Run, *, literal: bool) -> None:
    """Run a part beforehand: Kubernetes does, where it depends on neither device nor variables.

    Surely so only over a literal; where that is not so and it fails, nothing is known.
    """
    try:
        run(Frame({}, 0))
    except (KeyError, IndexError):
        return  # it does depend on them
    except CelError as error:
        raise (Refused if literal else Unsupported)(str(error)) from error
