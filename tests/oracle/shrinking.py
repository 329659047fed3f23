"""Makes a case that shows a difference small: parts are left out for as long as it stays."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

KEPT = frozenset(
    (
        *("name", "metadata", "driver", "pool", "spec", "devices", "requests", "exactly", "count"),
        *("deviceClassName", "allocationMode", "generation", "resourceSliceCount", "cel", "value"),
        *("expression", "id", "node", "features", "claims", "classes", "slices", "operator", "key"),
        *("effect", "counterSet", "counters", "min", "default", "capacity", "attributes"),
        *("allocatedDevices", "allocatedSharedDeviceIDs", "allocatedCapacity", "nodeSelectorTerms"),
    )
)
"""Fields without which an object is not one; what is in them may go."""

Path = tuple[str | int, ...]


def shrink(case: Any, still: Callable[[Any], bool], limit: int = 3000) -> Any:
    """The case without what `still` does not need, after at most `limit` tries."""
    tries = 0
    smaller = True
    while smaller:
        smaller = False
        for path in sorted(_removable(case), key=len):
            if tries >= limit:
                return case
            candidate = _without(case, path)
            if candidate is None:
                continue
            tries += 1
            if still(candidate):
                case, smaller = candidate, True
                break
    return case


def _removable(value: Any, path: Path = ()) -> Iterator[Path]:
    """List entries last first, so that earlier ones keep their places."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in KEPT or (path and inner in ([], {})):
                yield (*path, name)
            yield from _removable(inner, (*path, name))
    elif isinstance(value, list):
        for i in reversed(range(len(value))):
            if not _is_identity(path):
                yield (*path, i)
            yield from _removable(value[i], (*path, i))


def _is_identity(path: Path) -> bool:
    """The names of an allocated device stand in a list, too."""
    return path[-1] == "id" or (len(path) == 2 and str(path[0]).startswith("allocated"))


def _without(case: Any, path: Path) -> Any:
    """None where the path leads nowhere any more."""
    made = copy.deepcopy(case)
    inner = made
    try:
        for step in path[:-1]:
            inner = inner[step]
        del inner[path[-1]]
    except (KeyError, IndexError):
        return None
    if path[0] == "slices" and len(path) == 2:
        _one_slice_fewer(made, case["slices"][path[1]])
    return made


def _one_slice_fewer(made: Any, gone: Any) -> None:
    """A pool that loses a slice stays as complete as it was."""
    pool = gone["spec"]["pool"]
    for slice_ in made["slices"]:
        spec = slice_["spec"]
        same = spec["driver"] == gone["spec"]["driver"] and spec["pool"]["name"] == pool["name"]
        if same and spec["pool"]["generation"] == pool["generation"]:
            spec["pool"]["resourceSliceCount"] = max(1, spec["pool"]["resourceSliceCount"] - 1)
