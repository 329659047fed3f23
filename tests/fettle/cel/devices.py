"""Devices for tests, from the JSON that slices carry."""

from typing import Any

import msgspec

from fettle.api.resource import Device
from fettle.cel.language.compiler import judge, prepare
from fettle.cel.runtime import rows
from fettle.cel.runtime.protocol import Outcome
from fettle.cel.runtime.rows import DeviceRow

DRIVER = "gpu.example.com"

MODEL: dict[str, Any] = {
    "model": {"string": "A100"},
    "index": {"int": 3},
    "uuid": {"string": "GPU-1"},
    "mig": {"bool": True},
    "driverVersion": {"version": "550.54.15"},
    "pre": {"version": "1.2.3-rc.1+b5"},
    "links": {"ints": [3, 1, 2]},
    "tags": {"strings": ["fast", "new"]},
    "dra.net/numa": {"int": 1},
}
AMOUNTS: dict[str, Any] = {
    "memory": {"value": "40Gi"},
    "share": {"value": "500m"},
    "other.example.com/slots": {"value": "4"},
}


def device(
    attributes: dict[str, Any] | None = None, capacity: dict[str, Any] | None = None, **more: Any
) -> Device:
    fields = {"name": "d0", "attributes": attributes, "capacity": capacity, **more}
    return msgspec.convert(fields, Device, strict=False)


GPU = device(MODEL, AMOUNTS)


def whole_row(driver: str, of: Device) -> DeviceRow:
    """The row with everything that a device publishes."""
    return rows.row(None, rows.row_fingerprint(None, driver, of))


def judged(expression: str, of: Device = GPU, driver: str = DRIVER) -> Outcome:
    """The outcome of the worker, for the row that the engine would send."""
    prepared = prepare(expression)
    return judge(
        prepared, rows.row(prepared.reads, rows.row_fingerprint(prepared.reads, driver, of))
    )
