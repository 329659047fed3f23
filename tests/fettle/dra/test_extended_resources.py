"""Extended resources that a DeviceClass stands behind."""

from typing import Any

import msgspec
import pytest

from fettle.api import kinds, resource
from fettle.dra.extended_resources import (
    IMPLICIT_CLASS_PREFIX,
    device_units,
    in_order,
    needs_units,
    requests_behind,
)
from tests.fettle import building as b

CLASSES = {"gpu": b.device_class("gpu", extendedResourceName=b.RESOURCE)}


def container(count: int, **more: Any) -> dict[str, Any]:
    limits = {b.RESOURCE: str(count), "cpu": "1"} if count else {"cpu": "1"}
    return {"name": "c", "resources": {"limits": limits, "requests": limits}, **more}


def requests(
    *, init: tuple[dict[str, Any], ...] = (), main: tuple[dict[str, Any], ...]
) -> dict[str, int]:
    spec = {"initContainers": list(init), "containers": list(main)}
    pod = b.pod({"metadata": {"name": "p"}, "spec": spec})
    made = requests_behind(pod, b.RESOURCE, CLASSES)
    return {r.name: r.alternatives[0].count for r in made}


def test_each_container_that_keeps_running_has_its_own_request() -> None:
    assert requests(main=(container(2), container(0), container(1))) == {
        "container-0-request-1": 2,
        "container-2-request-1": 1,
    }


def test_an_init_container_uses_the_devices_of_the_containers_after_it() -> None:
    found = requests(init=(container(2),), main=(container(3),))
    assert found == {"container-1-request-1": 3}


def test_an_init_container_that_needs_more_than_those_after_it_has_one_more_request() -> None:
    found = requests(init=(container(4), container(3)), main=(container(1),))
    assert found == {"container-0-request-1": 3, "container-2-request-1": 1}


def test_a_sidecar_keeps_running_and_only_init_containers_before_it_use_its_devices() -> None:
    sidecar = container(2, restartPolicy="Always")
    found = requests(init=(sidecar, container(2)), main=(container(1),))
    assert found == {
        "container-0-request-1": 2,
        "container-1-request-1": 1,
        "container-2-request-1": 1,
    }


def test_the_overhead_of_a_runtime_class_is_added_to_all_containers() -> None:
    spec = {"initContainers": [container(3)], "containers": [container(2)]}
    with_overhead = {**spec, "overhead": {"cpu": "250m", b.RESOURCE: "1"}}
    pod = b.pod({"metadata": {"name": "p"}, "spec": with_overhead})
    assert list(device_units(pod)) == [(b.RESOURCE, 4)]
    bare = b.pod({"metadata": {"name": "p"}, "spec": {"overhead": {b.RESOURCE: "1"}}})
    assert list(device_units(bare)) == [(b.RESOURCE, 1)]
    assert needs_units(bare)


def test_a_resource_without_a_class_has_no_request() -> None:
    pod = b.pod(b.gpu_pod(2))
    assert requests_behind(pod, b.RESOURCE, {}) == ()


def test_every_class_is_behind_its_implicit_extended_resource() -> None:
    name = IMPLICIT_CLASS_PREFIX + "gpu"
    limits = {name: "1"}
    spec = {"containers": [{"resources": {"limits": limits, "requests": limits}}]}
    pod = b.pod({"metadata": {"name": "p"}, "spec": spec})
    (request,) = requests_behind(pod, name, CLASSES)
    assert request.alternatives[0].class_name == "gpu"


@pytest.mark.parametrize("names", [("ext", "ext-b"), ("ext-b", "ext"), ("b", "a")])
def test_of_classes_created_in_the_same_second_the_first_by_name_is_behind_a_resource(
    names: tuple[str, str],
) -> None:
    classes = {n: b.device_class(n, extendedResourceName=b.RESOURCE) for n in names}
    (request,) = requests_behind(b.pod(b.gpu_pod(1)), b.RESOURCE, classes)
    assert request.alternatives[0].class_name == min(names)


def test_the_newest_class_is_behind_a_resource_whatever_the_names() -> None:
    made = {"a": "2026-01-01T00:00:00Z", "a-new": "2026-01-01T00:00:01Z"}
    classes = {
        name: b.device_class(name, extendedResourceName=b.RESOURCE, created=at)
        for name, at in made.items()
    }
    (request,) = requests_behind(b.pod(b.gpu_pod(1)), b.RESOURCE, classes)
    assert request.alternatives[0].class_name == "a-new"


def test_requests_are_sorted_as_text() -> None:
    many = requests(main=tuple(container(1) for _ in range(11)))
    pod = b.pod({"metadata": {"name": "p"}, "spec": {"containers": [container(1)] * 11}})
    ordered = in_order(requests_behind(pod, b.RESOURCE, CLASSES))
    assert [r.name for r in ordered] == sorted(many)
    assert ordered[2].name == "container-10-request-1"


def test_a_class_that_cannot_be_read_may_be_behind_a_resource_without_a_known_class() -> None:
    pod = b.pod(b.gpu_pod())
    (request,) = requests_behind(pod, b.RESOURCE, {}, ["broken"])
    assert request.alternatives[0].unclear == "DeviceClass broken cannot be read"
    assert requests_behind(pod, b.RESOURCE, CLASSES, ["broken"]) == requests_behind(
        pod, b.RESOURCE, CLASSES
    )
    implicit = f"{IMPLICIT_CLASS_PREFIX}other"
    assert requests_behind(pod, implicit, {}, ["broken"]) == ()


@pytest.mark.parametrize(
    "spec",
    [
        {"selectors": [{"modelIn": ["a"]}], "extendedResourceName": b.RESOURCE},
        {"futureField": 1, "extendedResourceName": b.RESOURCE},
    ],
)
def test_a_class_with_unknown_fields_leaves_its_resource_undecided(spec: dict[str, Any]) -> None:
    raw = msgspec.json.encode({"metadata": {"name": "gpu"}, "spec": spec})
    made = kinds.CLASS.decode(raw)
    assert isinstance(made, resource.DeviceClass)
    (request,) = requests_behind(b.pod(b.gpu_pod()), b.RESOURCE, {"gpu": made})
    assert request.alternatives[0].unclear
