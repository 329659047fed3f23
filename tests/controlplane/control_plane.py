"""The running control plane of one test: etcd and API server, and on demand the controller-manager
and the scheduler, each of which a test may start, stop and restart. One folder holds its data,
certificates, kubeconfigs and logs; ports and etcd's data stay the same across restarts. etcd and
API server can be cleared for another test, which is cheaper than to start others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import ssl
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import aiohttp

from tests.controlplane import components, kubeconfigs
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.certificates import Authority, key_pem, private_key
from tests.controlplane.discovery import Served
from tests.controlplane.processes import Process, ProcessFailed, free_port
from tests.controlplane.stored import Stored
from tests.controlplane.waiting import NotInTime, wait_until

MADE_AT_FIRST = (
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
)
"""Parts of the API server's readiness that sleep for a second first, and make nothing on data that
hold the standard roles and priority classes already."""
_CLEARED = {"etcd", "kube-apiserver"}
"""What serves another test, too; nobody stopped it."""


class _New(NamedTuple):
    """What there is before a test has made anything."""

    stored: Stored
    served: Served


class ControlPlane:
    """With `data`, what another one's etcd held when that was ended by `leave`, it starts from
    there instead of from nothing. `environment` is added to its processes'."""

    def __init__(
        self,
        binary: Path,
        folder: Path,
        *,
        data: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.binary = binary
        self.folder = folder
        self.ports = components.Ports(*(free_port() for _ in range(5)))
        self.server = f"https://127.0.0.1:{self.ports.api_server}"
        self.started_in_s: dict[str, float] = {}
        """How long each component took to be ready, the last time it was started."""
        self._processes: dict[str, Process] = {}
        self._data = data
        self._environment = dict(environment or {})
        self._has_standard_objects = data is not None
        self._home = folder
        self._certify()
        self._as_new: _New | None = None
        self.move(folder)

    async def __aenter__(self) -> ControlPlane:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def move(self, folder: Path) -> None:
        """What is made from now on is in this folder; the logs of etcd and the API server, and
        `ca.crt`, are there too."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        if folder != self._home:
            for name in ("ca.crt", "etcd.log", "kube-apiserver.log"):
                (folder / name).symlink_to(self._home / name)
        self.tester_kubeconfig = self.kubeconfig_for_user("tester", "system:masters")
        self.tester = Api(self.server, self._tls_of("tester"))
        """The API client of an administrator."""

    async def start(self) -> None:
        """etcd and the API server, and a namespace `default` in which pods can be made."""
        if self._data is not None:
            _copy(self._data, self._home / "etcd")
        try:
            await self.start_etcd()
            await self.start_api_server()
            await self._allow_pods_in("default")
            stored = await Stored.of(self.ports.etcd)
            self._as_new = _New(stored, await self.tester.discover())
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Kill everything, in no time, and drop etcd's data; logs stay."""
        await self.tester.close()
        self.kill()

    def kill(self) -> None:
        for process in reversed(list(self._processes.values())):
            process.kill()
        self._processes.clear()
        shutil.rmtree(self._home / "etcd", ignore_errors=True)

    async def clear(self) -> bool:
        """Make it as new for another test: only etcd and the API server run, without objects.
        False if these were stopped or restarted, or cannot be cleared; then start others."""
        for name in self._processes.keys() - _CLEARED:
            await self._stop(name, kill=True)
        new = self._as_new
        try:
            if new is None or not await new.stored.restore():
                return False
            await wait_until(
                self.tester.discover,
                lambda served: served.resources == new.served.resources,
                what="no custom resource is served",
            )
        except (NotInTime, aiohttp.ClientError, OSError):
            return False
        finally:
            await self.tester.close()
        return True

    async def leave(self, data: Path) -> None:
        """Stop everything; what etcd holds is then in this folder, for others to start from."""
        await self.stop_api_server(kill=True)
        await self.stop_etcd()
        _copy(self._home / "etcd", data)
        await self.stop()

    # --- components

    async def start_etcd(self) -> None:
        command = components.etcd(self.ports, self._home / "etcd")
        await self._run(command, f"http://127.0.0.1:{self.ports.etcd}/health")

    async def stop_etcd(self, *, kill: bool = False) -> None:
        await self._stop("etcd", kill)

    async def start_api_server(self, *flags: str) -> None:
        """`flags` come after the harness's own."""
        command = [*components.api_server(self.ports, self._pki), *flags]
        excluded = MADE_AT_FIRST if self._has_standard_objects else ()
        parameters = "&".join(f"exclude={check}" for check in excluded)
        await self._run(command, f"{self.server}/readyz?{parameters}")
        self._has_standard_objects = True

    async def stop_api_server(self, *, kill: bool = False) -> None:
        """SIGTERM, which closes the port at once, and the end 2 s later: open watches would hold
        it for a minute. With `kill`, the end at once."""
        await self._stop("kube-apiserver", kill, grace_s=2)
        await self.tester.close()

    async def restart_api_server(self, *flags: str, kill: bool = False) -> None:
        """On the same port and the same data, with these further flags."""
        await self.stop_api_server(kill=kill)
        await self.start_api_server(*flags)

    async def start_controller_manager(self, *flags: str) -> None:
        """`flags` come after the harness's own."""
        kubeconfig = self.kubeconfig_for_user("system:kube-controller-manager")
        command = [*components.controller_manager(self.ports, self._pki, kubeconfig), *flags]
        url = f"https://127.0.0.1:{self.ports.controller_manager}/healthz"
        await self._run(command, url)

    async def stop_controller_manager(self, *, kill: bool = False) -> None:
        await self._stop("kube-controller-manager", kill)

    async def start_scheduler(self, configuration: Object | None = None, *flags: str) -> None:
        """With this KubeSchedulerConfiguration, of which only `clientConnection.kubeconfig` and
        `leaderElection` are overridden; None is the scheduler's default one. `flags` come after the
        harness's own."""
        kubeconfig = self.kubeconfig_for_user("system:kube-scheduler")
        made = components.scheduler_configuration(configuration, kubeconfig)
        file = self.folder / "kube-scheduler-config.json"
        file.write_text(json.dumps(made, indent=1))
        command = [*components.scheduler(self.ports, self._pki, file), *flags]
        await self._run(command, f"https://127.0.0.1:{self.ports.scheduler}/readyz")

    async def start_second_scheduler(
        self, name: str, configuration: Object | None = None, kubeconfig: Path | None = None
    ) -> None:
        """One beside the other, for pods of this `schedulerName`; it runs until the end. A stock
        one without extenders, unless a configuration is given, of which only the connection is
        overridden."""
        kubeconfig = kubeconfig or self.kubeconfig_for_user("system:kube-scheduler")
        given = {"profiles": [{"schedulerName": name}], **(configuration or {})}
        made = components.scheduler_configuration(given, kubeconfig)
        made["leaderElection"] = given.get("leaderElection", made["leaderElection"])
        file = self.folder / f"kube-scheduler-{name}-config.json"
        file.write_text(json.dumps(made, indent=1))
        ports = replace(self.ports, scheduler=free_port())
        command = components.scheduler(ports, self._pki, file)
        url = f"https://127.0.0.1:{ports.scheduler}/readyz"
        await self._run(command, url, name=f"kube-scheduler-{name}")

    async def stop_scheduler(self, *, kill: bool = False) -> None:
        await self._stop("kube-scheduler", kill)

    async def restart_scheduler(self, configuration: Object | None = None) -> None:
        """With another configuration; None is the default one, not the previous one."""
        await self.stop_scheduler()
        await self.start_scheduler(configuration)

    async def scheduler_metrics(self) -> str:
        """As an administrator sees them."""
        connector = aiohttp.TCPConnector(ssl=self._tls_of("tester"))
        url = f"https://127.0.0.1:{self.ports.scheduler}/metrics"
        async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as reply:
            return await reply.text()

    def process(self, component: str) -> Process:
        """The running etcd, kube-apiserver, kube-controller-manager or kube-scheduler."""
        return self._processes[component]

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def logs(self) -> dict[str, Path]:
        """Of all that ever ran in this folder, Fettle and extenders included."""
        return {log.stem: log for log in sorted(self.folder.glob("*.log"))}

    # --- users

    def kubeconfig_for_user(self, user: str, *groups: str) -> Path:
        """By client certificate."""
        path = self.folder / f"{_file_name(user)}.kubeconfig"
        if not path.exists():
            pair = self.authority.client(user, groups)
            kubeconfigs.write(kubeconfigs.by_certificate(self.server, self._ca, pair), path)
            (self.folder / f"{_file_name(user)}.pem").write_bytes(pair.certificate + pair.key)
        return path

    async def kubeconfig_for_service_account(
        self, name: str, namespace: str, *, lifetime_s: int = 3600
    ) -> Path:
        """By a token from the TokenRequest API, as a pod would get it."""
        token = await self.token(name, namespace, lifetime_s=lifetime_s)
        path = self.folder / f"{namespace}.{name}.kubeconfig"
        return kubeconfigs.write(kubeconfigs.by_token(self.server, self._ca, token), path)

    async def token(self, name: str, namespace: str, *, lifetime_s: int = 3600) -> str:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": lifetime_s},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        reply = await self.tester.request("POST", path, body=body)
        return str(reply["status"]["token"])

    def api_as_user(self, user: str, *groups: str) -> Api:
        """The caller closes it."""
        self.kubeconfig_for_user(user, *groups)
        return Api(self.server, self._tls_of(user))

    async def api_as_service_account(self, name: str, namespace: str) -> Api:
        """The caller closes it."""
        return Api(self.server, self.tls(), token=await self.token(name, namespace))

    async def create_namespace(self, name: str, labels: dict[str, str] | None = None) -> Object:
        """With its default service account, which admission of pods asks for."""
        metadata = {"name": name, "labels": labels or {}}
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        made = await self.tester.create(manifest)
        await self._allow_pods_in(name)
        return made

    async def metrics(self, component: str) -> str:
        """What kube-apiserver, kube-controller-manager or kube-scheduler tells Prometheus."""
        port = {
            "kube-apiserver": self.ports.api_server,
            "kube-controller-manager": self.ports.controller_manager,
            "kube-scheduler": self.ports.scheduler,
        }[component]
        async with Api(f"https://127.0.0.1:{port}", self._tls_of("tester")) as api:
            return await api.request_text("GET", "/metrics")

    # --- how

    def _certify(self) -> None:
        self._home.mkdir(parents=True, exist_ok=True)
        self.authority = Authority()
        self._ca = self.authority.certificate
        serving = self.authority.server("kube-apiserver", ["localhost", "kubernetes.default.svc"])
        files = {
            "ca.crt": self._ca,
            "server.crt": serving.certificate,
            "server.key": serving.key,
            "service-account.key": key_pem(private_key()),
        }
        for name, content in files.items():
            (self._home / name).write_bytes(content)
        self._pki = components.Pki(*(self._home / name for name in files))

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self._ca.decode())

    def _tls_of(self, user: str) -> ssl.SSLContext:
        tls = self.tls()
        tls.load_cert_chain(self.folder / f"{_file_name(user)}.pem")
        return tls

    async def _run(self, command: list[str], ready_url: str, name: str = "") -> None:
        name = name or command[0]
        if name in self._processes:
            raise RuntimeError(f"{name} is running already")
        started = time.monotonic()
        process = Process(name, [self.binary, *command], self.folder, env=self._environment)
        self._processes[name] = process
        await process.ready(ready_url, tls=self.tls())
        self.started_in_s[name] = time.monotonic() - started

    async def _stop(self, name: str, kill: bool, grace_s: float = 10) -> None:
        if name in _CLEARED:
            self._as_new = None
        process = self._processes.pop(name)
        if not kill:
            with contextlib.suppress(ProcessFailed):
                await process.terminate(grace_s)
        process.kill()

    async def _allow_pods_in(self, namespace: str) -> None:
        """Make what the controller-manager would make, so that pods do not depend on it."""
        account: dict[str, Any] = {"apiVersion": "v1", "kind": "ServiceAccount"}
        account["metadata"] = {"name": "default", "namespace": namespace}
        for _ in range(100):
            try:
                await self.tester.create(account)
                return
            except ApiError as error:
                if error.code == 409:
                    return
                if error.code != 404:  # the API server makes its namespace `default` a bit later
                    raise
            await asyncio.sleep(0.05)
        raise ProcessFailed(f"no namespace {namespace}\n{self.process('kube-apiserver').tail()}")


def _copy(folder: Path, to: Path) -> None:
    """Most of what etcd allots is empty, and is left out."""
    subprocess.run(["cp", "--recursive", "--sparse=always", folder, to], check=True)


def _file_name(user: str) -> str:
    return user.replace(":", ".")
