"""Contracts for import-linter: outsiders import a room's face only, no modules import each other in
a circle, and a small module with one user is part of that one.

A room is a package. Its face is its `__init__`: `__all__` there lists what others may use, names
and modules that serve as namespaces, as `core` in `core.Pod`. Everything else is private to it, and
to the rooms inside it: these are no outsiders, but have faces of their own.
"""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class FacesContract(Contract):
    """Options: `rooms`, and `exceptions`, each `importer -> imported`."""

    type_name = "faces"

    rooms: Any = fields.ListField(subfield=fields.StringField())
    exceptions: Any = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        public = {room: _public(room) for room in self.rooms}
        exceptions = self.exceptions or set()
        found = {
            f"{importer} -> {imported}"
            for imported in graph.modules
            if (room := self._room(imported)) not in (None, imported)
            if not any(_within(imported, module) for module in public[room])
            for importer in graph.find_modules_that_directly_import(imported)
            if not _within(importer, room)
        }
        # By `fettle.records.log`, whoever has the room itself would reach all that is in it.
        found |= {
            f"{importer} -> {room}, by no `from {room} import`"
            for room in {*self.rooms, *(room.partition(".")[0] for room in self.rooms)}
            for importer in graph.find_modules_that_directly_import(room)
            for found_at in graph.get_import_details(importer=importer, imported=room)
            if not found_at["line_contents"].startswith(f"from {room} import ")
        }
        found |= {
            f"{module} -> itself, a package that is no room"
            for module in graph.modules
            if not graph.is_module_squashed(module)  # somebody else's package
            if self._room(module) is None and graph.find_children(module)
            if not any(_within(room, module) for room in self.rooms)
        }
        unused = {f"{one} (an exception that nothing needs)" for one in exceptions - found}
        broken = sorted((found - exceptions) | unused)
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for one in check.metadata["broken"]:
            output.print_error(f"- {one}", bold=False)
        output.print_error("Import from the face of a room; a new package is a new room.")

    def _room(self, module: str) -> str | None:
        within = [room for room in self.rooms if _within(module, room)]
        return max(within, key=len, default=None)


class CirclesContract(Contract):
    """No options. A module is imported by none that it imports, by whatever way."""

    type_name = "circles"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        imports = {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}
        try:
            TopologicalSorter(imports).prepare()
        except CycleError as error:
            return ContractCheck(kept=False, metadata={"circle": error.args[1][::-1]})
        return ContractCheck(kept=True)

    def render_broken_contract(self, check: ContractCheck) -> None:
        output.print_error(f"- {' -> '.join(check.metadata['circle'])}", bold=False)
        output.print_error("Move what two of them need into a module that imports neither.")


class SizesContract(Contract):
    """Options: `smallest` and `largest`, in lines, and `larger`: modules that may have more.

    A module below `smallest` that only one module of its package uses is part of it. It stays if
    both together are above `largest`; if it is imported as a namespace, as `hami` in `hami.names`;
    if it is imported within a function, since it is heavy; or if nothing imports it, as a process
    that is started by its name.
    """

    type_name = "sizes"

    smallest: Any = fields.IntegerField()
    largest: Any = fields.IntegerField()
    larger: Any = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        lines = {
            module: len(_file(module).read_text(encoding="utf-8").splitlines())
            for module in graph.modules
            if not graph.is_module_squashed(module)
        }
        larger = self.larger or set()
        broken = [
            f"{module} has {number} lines, of {self.largest}: part it if it holds two ideas"
            for module, number in lines.items()
            if number > self.largest and module not in larger
        ]
        broken += [
            f"{module} is a `larger` one that is not"
            for module in larger
            if lines.get(module, 0) <= self.largest
        ]
        for module, number in lines.items():
            users = graph.find_modules_that_directly_import(module)
            if number >= self.smallest or len(users) != 1 or graph.find_children(module):
                continue
            (user,) = users
            package = module.rpartition(".")[0]
            if user.rpartition(".")[0] != package or number + lines[user] > self.largest:
                continue
            if _takes_names(graph, user, module):
                broken.append(f"{module} ({number} lines) has one user, {user}: move it there")
        return ContractCheck(kept=not broken, metadata={"broken": sorted(broken)})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for one in check.metadata["broken"]:
            output.print_error(f"- {one}", bold=False)


def _takes_names(graph: ImportGraph, user: str, module: str) -> bool:
    """Whether the user imports names of the module, at once."""
    lines = _file(user).read_text(encoding="utf-8").splitlines()
    return any(
        lines[found["line_number"] - 1].startswith(f"from {module} import")
        for found in graph.get_import_details(importer=user, imported=module)
    )


def _file(module: str) -> Path:
    path = Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _public(room: str) -> list[str]:
    """The modules that the face names; what it names besides has no module of that name."""
    face = Path(*room.split("."), "__init__.py")
    for node in ast.parse(face.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [f"{room}.{name}" for name in ast.literal_eval(node.value)]
    return []
