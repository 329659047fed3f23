"""A container of a shipped Deployment, run as a process: its command, arguments, environment,
volumes and probes as they stand in the manifest. What differs is what a container runtime does:
ports are led to free ones, and paths into a folder, since the process has no root of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.controlplane.accounts import Account
from tests.controlplane.fettle_process import REPOSITORY
from tests.controlplane.processes import Process, free_port

_ACCOUNT = """
import os
from pathlib import Path
from fettle.client import connection
connection.ACCOUNT = Path(os.environ["ACCOUNT"])
"""
"""Each process that Python starts has it as its `sitecustomize`."""

Volumes = Mapping[str, Mapping[str, str]]
"""File name → content, by the name of the ConfigMap or Secret."""


class Container:
    def __init__(
        self, deployment: dict[str, Any], folder: Path, account: Account, volumes: Volumes
    ) -> None:
        pod = deployment["spec"]["template"]["spec"]
        (self.spec,) = pod["containers"]
        self.root = folder / "root"
        self.scratch = folder / "scratch"
        self.scratch.mkdir(parents=True)
        self.ports = {port["name"]: free_port() for port in self.spec["ports"]}
        self._folder = folder
        self._account = account
        self._mount(pod.get("volumes", []), volumes)
        self.process: Process | None = None

    def start(self) -> None:
        assert self.spec["command"] == ["fettle"]
        arguments = [self._outside(part) for part in self.spec["args"]]
        customized = self._folder / "python"
        customized.mkdir(exist_ok=True)
        (customized / "sitecustomize.py").write_text(_ACCOUNT)
        given = {v["name"]: self._outside(v["value"]) for v in self.spec.get("env", [])}
        self.process = Process(
            "container",
            [sys.executable, "-m", "fettle", *arguments],
            self._folder,
            env={
                **self._account.environment,
                **given,
                "ACCOUNT": str(self._account.folder),
                "PYTHONPATH": os.pathsep.join(
                    [
                        str(customized),
                        str(REPOSITORY),
                        *filter(None, [os.environ.get("PYTHONPATH")]),
                    ]
                ),
                "PYTHONDONTWRITEBYTECODE": "1",
                **dict.fromkeys(("HOME", "TMPDIR"), str(self.scratch)),
            },
        )

    async def ready(self, probe: str) -> None:
        """Until the named probe's path answers 200."""
        assert self.process is not None
        get = self.spec[probe]["httpGet"]
        await self.process.ready(
            f"http://127.0.0.1:{self.ports[get['port']]}{get['path']}", timeout_s=30
        )

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def written(self) -> list[Path]:
        """Files that it made where a container with a read-only root could make none."""
        return list(self.scratch.rglob("*"))

    def _mount(self, declared: list[dict[str, Any]], volumes: Volumes) -> None:
        empty = [volume["name"] for volume in declared if "emptyDir" in volume]
        sources = {v["name"]: _source(v) for v in declared if v["name"] not in empty}
        for mount in self.spec.get("volumeMounts", []):
            where = self._inside(mount["mountPath"])
            where.mkdir(parents=True)
            if mount["name"] in empty:
                continue
            assert mount["readOnly"] is True
            name, renamed = sources[mount["name"]]
            for file, content in volumes[name].items():
                if not renamed or file in renamed:
                    (where / renamed.get(file, file)).write_text(self._outside(content))

    def _inside(self, path: str) -> Path:
        return self.root / path.removeprefix("/")

    def _outside(self, text: str) -> str:
        """What the container's ports and paths are called out here."""
        for port in self.spec["ports"]:
            text = text.replace(f":{port['containerPort']}", f":{self.ports[port['name']]}")
        for mount in self.spec.get("volumeMounts", []):
            text = text.replace(mount["mountPath"], str(self._inside(mount["mountPath"])))
        return text


def _source(volume: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The name of the ConfigMap or Secret, and its files' other names if only some are shown."""
    if held := volume.get("configMap"):
        return held["name"], {}
    held = volume["secret"]
    return held["secretName"], {item["key"]: item["path"] for item in held.get("items", [])}
