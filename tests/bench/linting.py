"""`fettle lint` of many documents, the start of the program included."""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median

import msgspec

from tests.bench.figures import Figure
from tests.bench.houses import House
from tests.controlplane import objects
from tests.controlplane.objects import DRIVER

DOCUMENTS = 200
ROUNDS = 5
TARGET_S = 2.0


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
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fettle", "lint", file, stdout=asyncio.subprocess.DEVNULL
        )
        if await process.wait() != 0:
            raise RuntimeError(f"fettle lint ended with {process.returncode}")
        took_s.append(time.perf_counter() - began)
    return [Figure(f"fettle lint of {DOCUMENTS} documents", median(took_s), "s", target=TARGET_S)]
