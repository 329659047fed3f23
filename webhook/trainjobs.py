"""How a TrainJob hands on its policy: as a patch, under our name, of the JobSet made for it.

Its pods come from the template of a runtime, which other TrainJobs share, so there is nothing of
its own to stamp (Kubeflow Trainer 2.2 and later). The JobSet then hands it to its pods.
"""

from fettle.api.raw import Raw, mapping, mappings, strings
from fettle.model import ANNOTATIONS
from webhook.injecting import Injecting, record_of
from webhook.patches import Editing
from webhook.places import FieldPath

MANAGER = "fettle.dev/webhook"
_PATCHES = FieldPath().at("spec", "runtimePatches")
_NAME = _PATCHES.entry(0, MANAGER).name


def hand_on(injecting: Injecting) -> None:
    own = strings(mapping(injecting.document, "metadata").get("annotations"))
    annotations = {key: own[key] for key in ANNOTATIONS if key in own}
    if not annotations or _ours(injecting.document) is not None:
        return
    patch = {
        "manager": MANAGER,
        "trainingRuntimeSpec": {"template": {"metadata": {"annotations": annotations}}},
    }
    injecting.append(_PATCHES, patch, name=_NAME, recorded=annotations)


def carry(editing: Editing, old: Raw) -> None:
    """Our patch, as it stands, where its author applies a TrainJob without it."""
    ours = _ours(old)
    if ours is not None and _NAME in record_of(old).values and _ours(editing.document) is None:
        editing.append(_PATCHES.path, ours)


def _ours(document: Raw) -> Raw | None:
    patches = mappings(mapping(document, "spec").get("runtimePatches"))
    return next((patch for _, patch in patches if patch.get("manager") == MANAGER), None)
