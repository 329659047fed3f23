"""Puts Fettle's entry into a KubeSchedulerConfiguration, or takes it out, and refuses what
kube-scheduler would not start with. Pure.
"""

from typing import Any

from fettle.cli.scheduler_config.entries import (
    LOOPBACK,
    Entry,
    Wanted,
    in_place,
    is_fettles,
    names,
    new_entry,
    updated,
)
from fettle.model import BadInput

KIND = "KubeSchedulerConfiguration"
GROUP = "kubescheduler.config.k8s.io"
API_VERSION = f"{GROUP}/v1"
NEW = f"""\
# For kube-scheduler's flag --config. `fettle scheduler-config` makes it, and merges the entry below
# into a configuration that you have already.
apiVersion: {API_VERSION}
kind: {KIND}
clientConnection:
  kubeconfig: /etc/kubernetes/scheduler.conf
leaderElection:
  leaderElect: true
"""


def check(value: Any) -> None:
    """Raises BadInput with what is wrong and what to do."""
    if not isinstance(value, dict):
        raise BadInput(f"it is no {KIND}, but {_called(value)}")
    kind, version = value.get("kind"), value.get("apiVersion")
    if kind != KIND:
        raise BadInput(
            f"it is a {kind}, no {KIND}: give the file that kube-scheduler's flag --config names, "
            "and nothing if it has no such flag"
            if kind
            else f"it has no kind: write `kind: {KIND}`"
        )
    if version != API_VERSION:
        raise BadInput(
            f"its apiVersion is {version}, and kube-scheduler has read only {API_VERSION} since "
            "Kubernetes 1.29: change that first"
            if version
            else f"it has no apiVersion: write `apiVersion: {API_VERSION}`"
        )
    if not isinstance(connection := value.get("clientConnection") or {}, dict):
        raise BadInput(f"clientConnection is {_called(connection)}: write a mapping")
    _list_of_mappings(value, "profiles", "")
    for i, entry in enumerate(_list_of_mappings(value, "extenders", "")):
        _check_entry(entry, f"extenders[{i}]")
    _check_shared(value.get("extenders") or ())


def _check_entry(entry: Entry, where: str) -> None:
    if not isinstance(entry.get("urlPrefix"), str):
        raise BadInput(f"{where} has no urlPrefix: write where kube-scheduler is to call it")
    for j, resource in enumerate(_list_of_mappings(entry, "managedResources", f"{where}.")):
        if not isinstance(resource.get("name"), str):
            raise BadInput(f"{where}.managedResources[{j}] has no name: write the resource's")


def _check_shared(entries: Any) -> None:
    by: dict[str, str] = {}
    for entry in entries:
        for name in names(entry):
            if name in by:
                raise BadInput(
                    f"managedResources has {name} twice, under {by[name]} and "
                    f"{entry['urlPrefix']}, and kube-scheduler starts only if each is there once: "
                    "take one out"
                )
            by[name] = entry["urlPrefix"]


def _list_of_mappings(value: dict[str, Any], key: str, where: str) -> list[Any]:
    found = value.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise BadInput(f"{where}{key} is {_called(found)}: write a list")
    for i, one in enumerate(found):
        if not isinstance(one, dict):
            raise BadInput(f"{where}{key}[{i}] is {_called(one)}: write a mapping")
    return found


def _called(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else f"the value {str(value)[:60]!r}"


def with_fettle(configuration: dict[str, Any], wanted: Wanted) -> dict[str, Any]:
    """The same with an entry for Fettle, as it is wanted. Raises BadInput if there are two."""
    entries = list(configuration.get("extenders") or ())
    at = place(entries, wanted.url)
    taken = {name for i, entry in enumerate(entries) if i != at for name in names(entry)}
    if at is None:
        if (found := in_place(entries, wanted)) is not None:
            other, verb = found
            raise BadInput(
                f"extenders[{other}] is at Fettle's address, but has `{verb}`, which Fettle does "
                "not serve: give Fettle's own address with --url; if this is Fettle's entry, "
                f"--url {LOOPBACK} puts it right"
            )
        entries.append(new_entry(wanted, taken))
    else:
        entries[at] = updated(entries[at], wanted, taken)
    return {**configuration, "extenders": entries}


def without_fettle(configuration: dict[str, Any], url: str | None) -> dict[str, Any]:
    """The same without Fettle's entry, and without `extenders` if there is no other. Raises
    BadInput if there is none of Fettle's."""
    entries = list(configuration.get("extenders") or ())
    if (at := place(entries, url)) is None:
        raise BadInput("it has no entry for Fettle: there is nothing to take out")
    del entries[at]
    left = {key: value for key, value in configuration.items() if key != "extenders"}
    return {**configuration, "extenders": entries} if entries else left


def place(entries: list[Entry], url: str | None) -> int | None:
    """Which of the extenders is Fettle; raises BadInput if there are two."""
    mine = [i for i, entry in enumerate(entries) if is_fettles(entry, url)]
    if len(mine) > 1:
        first, second = (f"extenders[{i}]" for i in mine[:2])
        raise BadInput(f"{first} and {second} both lead to Fettle: take one out")
    return mine[0] if mine else None


def scheduler_names(configuration: dict[str, Any]) -> list[str]:
    """Of its profiles."""
    profiles: list[Entry] = configuration.get("profiles") or [{}]
    return [str(profile.get("schedulerName") or "default-scheduler") for profile in profiles]


def taken_by_others(configuration: dict[str, Any], wanted: Wanted) -> dict[str, str]:
    """What Fettle's entry would list too, if no other extender did; by that one's address."""
    entries = configuration.get("extenders") or []
    at = place(entries, wanted.url)
    asked = names(new_entry(wanted, ()) if at is None else updated(entries[at], wanted, ()))
    return {
        name: entry["urlPrefix"]
        for i, entry in enumerate(entries)
        for name in names(entry)
        if i != at and name in asked
    }
