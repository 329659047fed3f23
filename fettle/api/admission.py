"""The group `admissionregistration.k8s.io/v1`: where the API server is told of webhooks."""

from typing import Any

from fettle.api.meta import ObjectMeta, Wire


class WebhookConfiguration(Wire, frozen=True, kw_only=True):
    """Mutating or validating. Each of `webhooks` is as it came: a patch replaces them whole."""

    metadata: ObjectMeta
    webhooks: tuple[dict[str, Any], ...] | None = None
