"""Random nodes and claims for properties: small enough that everything is contended for."""

from typing import Any

from hypothesis import strategies as st

from tests.fettle.dra.allocator.cases import (
    DRIVER,
    Raw,
    case,
    claim,
    device,
    everything,
    first_available,
    request,
    selecting,
    slice_,
    wanted,
)

MEMORY = f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("3"))'
SELECTORS = (
    "true",
    f'device.driver == "{DRIVER}"',
    f'"model" in device.attributes["{DRIVER}"]',
    f"!device.allowMultipleAllocations || {MEMORY}",
)
ATTRIBUTES = (f"{DRIVER}/model", f"{DRIVER}/numa")
TAINTS: st.SearchStrategy[Raw] = st.builds(
    dict, key=st.sampled_from("kl"), effect=st.sampled_from(["NoSchedule", "NoExecute", "None"])
)
TOLERATIONS = st.lists(
    st.sampled_from("kl").map(lambda key: {"key": key, "operator": "Exists"}), max_size=2
)


@st.composite
def slices(draw: st.DrawFn) -> list[Raw]:
    found: list[Raw] = []
    for pool in "pq"[: draw(st.integers(1, 2))]:
        counted = draw(st.booleans())
        devices = [
            _device(draw, f"{pool}{i}", counted=counted) for i in range(draw(st.integers(1, 4)))
        ]
        whole = 2 if counted else 1
        if counted:
            sets = [
                {"name": "gpu", "counters": {"slices": {"value": str(draw(st.integers(0, 6)))}}}
            ]
            found.append(slice_(name=f"{pool}-0", pool=pool, of=whole, sharedCounters=sets))
        found.append(slice_(*devices, name=f"{pool}-1", pool=pool, of=whole))
    return found


def _device(draw: st.DrawFn, name: str, *, counted: bool) -> Raw:
    attributes: Raw = {}
    for key, values in (("model", "ab"), ("numa", (0, 1))):
        if draw(st.integers(0, 3)):
            attributes[key] = draw(st.sampled_from(values))
    fields: Raw = {}
    if draw(st.booleans()):
        fields["allowMultipleAllocations"] = True
        fields["capacity"] = {"memory": {"value": str(draw(st.integers(1, 6)))}}
        if draw(st.booleans()):
            limits = {"min": "1", "step": "2"}
            fields["capacity"]["memory"]["requestPolicy"] = {"default": "1", "validRange": limits}
    if counted:
        value = str(draw(st.integers(0, 4)))
        taken = {"counterSet": "gpu", "counters": {"slices": {"value": value}}}
        fields["consumesCounters"] = [taken]
    if draw(st.integers(0, 3)) == 0:
        fields["taints"] = [draw(TAINTS)]
    return device(name, attributes, **fields)


@st.composite
def claims(draw: st.DrawFn, name: str) -> Raw:
    requests = [_request(draw, f"r{i}") for i in range(draw(st.sampled_from([1, 1, 2, 3])))]
    kind = draw(st.sampled_from(["", "", "matchAttribute", "distinctAttribute"]))
    attribute = draw(st.sampled_from(ATTRIBUTES))
    return claim(*requests, constraints=({kind: attribute},) if kind else (), name=name)


@st.composite
def pairs(draw: st.DrawFn, name: str) -> Raw:
    """Two or three groups of requests that each have to agree on something, in any order."""
    groups = [
        [f"{letter}{i}" for i in range(draw(st.integers(1, 2)))]
        for letter in "xyz"[: draw(st.integers(2, 3))]
    ]
    names = draw(st.permutations([each for group in groups for each in group]))
    requests = [_request(draw, each) for each in names]
    attribute = draw(st.sampled_from(ATTRIBUTES))
    constraints = [
        {"requests": group, "matchAttribute": draw(st.sampled_from([attribute, *ATTRIBUTES]))}
        for group in groups
    ]
    return claim(*requests, constraints=tuple(constraints), name=name)


def _request(draw: st.DrawFn, name: str) -> Raw:
    if draw(st.integers(0, 3)) == 0:
        return first_available(name, x=_wanted(draw), y=_wanted(draw))
    if draw(st.integers(0, 7)) == 0:
        fields = _wanted(draw)
        for field in ("allocationMode", "count", "deviceClassName"):
            fields.pop(field)
        return everything(name, **fields)
    fields = _wanted(draw)
    return request(name, fields.pop("count"), **fields)


def _wanted(draw: st.DrawFn) -> Raw:
    fields: dict[str, Any] = {"selectors": selecting(draw(st.sampled_from(SELECTORS)))}
    if draw(st.integers(0, 2)) == 0:
        amount = draw(st.sampled_from(["1", "2", "4"]))
        fields["capacity"] = {"requests": {"memory": amount}}
    if draw(st.booleans()):
        fields["tolerations"] = draw(TOLERATIONS)
    return wanted(draw(st.sampled_from([1, 1, 2, 3])), **fields)


@st.composite
def cases(draw: st.DrawFn) -> Raw:
    """A node with one or two pools, some of it in use, and one or two claims."""
    published = draw(slices())
    names = [
        [DRIVER, s["spec"]["pool"]["name"], d["name"]]
        for s in published
        for d in s["spec"]["devices"]
    ]
    busy = draw(st.lists(st.sampled_from(names), max_size=2, unique_by=tuple))
    kinds = st.sampled_from([claims, claims, claims, pairs])
    asked = [draw(draw(kinds)(name)) for name in "cd"[: draw(st.integers(1, 2))]]
    return case(asked, published, allocatedDevices=busy)
