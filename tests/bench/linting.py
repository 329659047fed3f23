"""`fettle lint`: of many documents, and the processor time of one file, in which most is the start
of the program and of the process that evaluates its selectors."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from statistics import median

import msgspec

from tests.bench.figures import Figure
from tests.bench.houses import House
from tests.controlplane import objects
from tests.controlplane.objects import DRIVER

DOCUMENTS = 200
ROUNDS = 5
TARGET_S = 2.0
TARGET_OF_ONE_S = 0.5
SELECTOR = (
    'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu" && '
    'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0'
)


async def measure(house: House) -> list[Figure]:
    file = house.folder / "manifests.yaml"
    kinds = (
        lambda i: objects.pod(f"pod-{i}", gpus=1, annotations={"fettle.dev/policy": "training"}),
        lambda i: objects.job(f"job-{i}", gpus=8),
        lambda i: objects.claim(f"claim-{i}", spec=objects.claim_spec(device_class=DRIVER)),
        lambda i: objects.claim_template(f"t-{i}", spec=objects.claim_spec(device_class=DRIVER)),
    )
    made = [kinds[i % len(kinds)](i) for i in range(DOCUMENTS)]
    file.write_bytes(b"\n---\n".join(msgspec.yaml.encode(document) for document in made))
    took_s = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await asyncio.to_thread(_lint, file)
        took_s.append(time.perf_counter() - began)
    one = house.folder / "claim.yaml"
    spec = objects.claim_spec(device_class=DRIVER)
    selectors = [{"cel": {"expression": SELECTOR}}]
    spec["devices"]["requests"][0]["exactly"]["selectors"] = selectors
    one.write_bytes(msgspec.yaml.encode(objects.claim_template("one", spec=spec)))
    used_s = [await asyncio.to_thread(_lint, one) for _ in range(ROUNDS)]
    return [
        Figure(f"fettle lint of {DOCUMENTS} documents", median(took_s), "s", target=TARGET_S),
        Figure(
            "fettle lint of one claim with a selector, processor time",
            median(used_s),
            "s",
            target=TARGET_OF_ONE_S,
        ),
    ]


def _lint(file: Path) -> float:
    """Its processor time, that of its own processes included. The first run may have to compile
    Python files: a median leaves it out."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "fettle", "lint", str(file)]
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    process = os.posix_spawn(sys.executable, command, kept, file_actions=silent)
    _, status, used = os.wait4(process, 0)
    if (code := os.waitstatus_to_exitcode(status)) != 0:
        raise RuntimeError(f"fettle lint ended with {code}")
    return used.ru_utime + used.ru_stime
