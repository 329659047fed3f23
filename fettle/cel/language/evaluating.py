"""Judges one device by one expression; runs only in the worker process.

Between the worker's loop and the compiled program: knows how a row becomes the variable `device`,
and what each way of ending means for the scheduler.
"""

from typing import NamedTuple

from fettle.api import quantities
from fettle.api.resource import DeviceAttribute
from fettle.cel.language.compiling import Program, build
from fettle.cel.language.environments import STORED, Environment
from fettle.cel.language.equations import equations
from fettle.cel.language.reading import driver, reads
from fettle.cel.language.syntax import Refused, Unsupported
from fettle.cel.library import semver as versions
from fettle.cel.library.amounts import MutableQuantity
from fettle.cel.library.containers import Entries
from fettle.cel.library.conversions import type_name
from fettle.cel.library.values import CelError, Ended, Frame, Optional, Undecidable, Value
from fettle.cel.runtime.outcomes import MATCH, NO_MATCH, Outcome, undecided, would_abort
from fettle.cel.runtime.rows import LABELS, Amount, DeviceRow, Equation, Field, Reads, Variable

UNFORESEEN = "an error in Fettle itself"
"""How the reason begins where an expression led to an exception that nothing foresaw."""


class Prepared(NamedTuple):
    """A parsed expression: either a program, or one outcome for every device."""

    reads: Reads
    program: Program | None
    outcome: Outcome | None
    variable: Variable = "device"
    driver: str = ""
    equations: tuple[Equation, ...] = ()


def prepare(expression: str, environment: Environment = STORED) -> Prepared:
    """Parse and check an expression; never raises for what is in it."""
    try:
        program = build(expression, environment)
        tree = program.tree
        return Prepared(
            reads(tree), program, None, environment.variable, driver(tree), equations(tree)
        )
    except Refused as refusal:
        return Prepared((), None, would_abort(f"it does not compile: {refusal}"))
    except Unsupported as reason:
        return Prepared((), None, undecided(str(reason)))
    except (RecursionError, MemoryError):
        return Prepared((), None, undecided("it is too large"))
    except Exception as error:  # a mistake here may cost an answer, never the worker
        return Prepared((), None, undecided(_unforeseen(error)))


def judge(prepared: Prepared, row: DeviceRow) -> Outcome:
    """What the expression says of the device; never raises for what is in either."""
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
    """What a program comes to on a row; raises what its parts do."""
    assert prepared.program is not None
    subject = node(row) if prepared.variable == "node" else device(row)
    return prepared.program.run(Frame(subject, prepared.program.slots))


def _unforeseen(error: Exception) -> str:
    return f"{UNFORESEEN}: {type(error).__name__}: {error}"


def device(row: DeviceRow) -> Entries:
    """The variable `device`."""
    attributes = [(domain, name, _attribute(value)) for domain, name, value in row.attributes]
    capacity = [(domain, name, _amount(value)) for domain, name, value in row.capacity]
    return Entries(
        {
            "driver": row.driver,
            "allowMultipleAllocations": row.multiple,
            "attributes": _domains(row, "attributes", attributes),
            "capacity": _domains(row, "capacity", capacity),
        }
    )


def node(row: DeviceRow) -> Entries:
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
    """What is known of a domain that no value was sent of: all of it, only in a whole row."""
    return None if row.whole else {}


def _attribute(attribute: DeviceAttribute | None) -> Value:
    if attribute is None:
        return None
    a = attribute
    for items in (a.ints, a.bools, a.strings):
        if items is not None:
            return list(items)
    if a.versions is not None:
        return [versions.parse(version) for version in a.versions]
    for value in (a.int_, a.bool_, a.string):
        if value is not None:
            return value
    if a.version is None:
        raise Undecidable("an attribute has no value of a known type")
    return versions.parse(a.version)


def _amount(amount: Amount | None) -> Value:
    if amount is None:
        return None
    if isinstance(amount, float):
        raise Undecidable("a capacity is written as a fraction without quotes")
    try:
        return MutableQuantity(quantities.parse(str(amount).strip()))
    except (ValueError, quantities.Unsure) as error:
        raise Undecidable(f"a capacity cannot be read: {error}") from error
