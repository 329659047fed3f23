"""The group `admissionregistration.k8s.io/v1`: how the API server learns which webhooks to call."""

from typing import Any

from fettle.api.annotations import ApiObject


class WebhookConfiguration(ApiObject, frozen=True, kw_only=True):
    """A mutating or validating webhook configuration. `webhooks` are kept as raw objects, since a
    patch replaces each of them whole."""

    webhooks: tuple[dict[str, Any], ...] | None = None
