"""Settings of what Fettle reads: the API server's watches, Prometheus and Alertmanager."""

import re
from math import inf
from urllib.parse import urlsplit

from fettle.config.sections import (
    LONGEST_NAME,
    ListenAddress,
    SettingsSection,
    TLSSettings,
    check,
)

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class SourceSettings(SettingsSection, frozen=True, kw_only=True):
    """How fresh the sources must be."""

    silent_after_seconds: float = 150.0
    """After this time without contact (event or bookmark), Fettle is not ready, and the extender
    answers `Error` instead of verdicts. Use more than 60, since bookmarks come about once a
    minute."""

    def __post_init__(self) -> None:
        check(
            "sources",
            1 <= self.silent_after_seconds < inf,
            "silentAfterSeconds must be at least 1, and should be more than 60",
        )


class PrometheusSettings(SettingsSection, frozen=True, kw_only=True):
    """Metrics as evidence: a Prometheus, or what answers as one, is asked by the rules of the table
    `metrics`. Off without a `url`."""

    url: str = ""
    """Its address, such as `http://prometheus.monitoring:9090`. `/api/v1/query` is added."""
    interval_seconds: float = 30.0
    """How often it is asked. A fault that it shows counts at most so much later."""
    timeout_seconds: float = 10.0
    """How long one query may take."""
    max_mebibytes: int = 32
    """The largest answer to one query. 40,000 series take about 12."""
    exporter_namespaces: tuple[str, ...] = (
        "gpu-operator",
        "nvidia-gpu-operator",
        "dcgm-exporter",
        "kube-amd-gpu",
        "amd-gpu-operator",
        "monitoring",
        "prometheus",
        "observability",
        "openshift-monitoring",
        "gke-managed-system",
        "amazon-cloudwatch",
        "kube-system",
    )
    """The namespaces (the label `namespace`) of exporters; patterns such as `gpu-*`. What series of
    other namespaces say is the word of those: it lowers scores, within bounds, and refuses nothing.
    Series without that label count in full, as of exporters outside the cluster; those of recording
    rules and alerts do not."""
    bearer_token_file: str = ""
    """A file with a bearer token, for https or loopback. Files with credentials are read again in
    each round."""
    username_file: str = ""
    """A file with the user's name, for basic authentication."""
    password_file: str = ""
    """A file with that user's password."""
    certificate_file: str = ""
    """Our client certificate (PEM), for mTLS."""
    key_file: str = ""
    """The key of that certificate."""
    ca_file: str = ""
    """Certificates (PEM) to trust the server by, instead of the system's."""
    headers: dict[str, str] = {}
    """Further headers of each request, such as `X-Scope-OrgID`."""

    def __post_init__(self) -> None:
        for setting, must in self._rules():
            check("prometheus", setting, must)

    def _rules(self) -> tuple[tuple[bool, str], ...]:
        parts = urlsplit(self.url)
        return (
            (
                not self.url or (parts.scheme in ("http", "https") and bool(parts.hostname)),
                f"url {self.url[:LONGEST_NAME]!r} must be such as http://prometheus:9090",
            ),
            (
                not (parts.username or parts.password),
                "url must hold no credentials; name usernameFile and passwordFile",
            ),
            (not parts.query and not parts.fragment, "url must end with a path, if any"),
            (1 <= self.interval_seconds <= 3600, "intervalSeconds must be 1 s to an hour"),
            (0 < self.timeout_seconds <= 300, "timeoutSeconds must be more than 0, at most 300"),
            (1 <= self.max_mebibytes <= 512, "maxMebibytes must be 1 to 512"),
            (
                bool(self.username_file) == bool(self.password_file),
                "usernameFile and passwordFile are needed together",
            ),
            (
                not (self.bearer_token_file and self.username_file),
                "bearerTokenFile and usernameFile are mutually exclusive",
            ),
            (
                not (self.bearer_token_file or self.username_file)
                or parts.scheme == "https"
                or ListenAddress(parts.hostname or "", 0).loopback,
                "url must be https, or lead to loopback, with bearerTokenFile or usernameFile: "
                "whoever is on the way of plain HTTP could read them",
            ),
            (
                bool(self.certificate_file) == bool(self.key_file),
                "certificateFile and keyFile are needed together",
            ),
            (
                all(_HEADER.fullmatch(n) and v.isprintable() for n, v in self.headers.items()),
                "headers must be names of headers and printable text",
            ),
            (
                not any(name.lower() == "authorization" for name in self.headers),
                "headers must not hold credentials; name bearerTokenFile",
            ),
        )


class AlertmanagerSettings(SettingsSection, frozen=True, kw_only=True):
    """Alerts as evidence: a listener for Alertmanager's webhook (`POST /alerts`). Off without
    `listen`."""

    listen: str = ""
    """Where to listen, such as `:8094`."""
    bearer_token_file: str = ""
    """A file with the token that Alertmanager must present. Off loopback, this or
    `tls.clientCaFile` is needed, and `tls.certificateFile`."""
    tls: TLSSettings = TLSSettings()
    """TLS files. `tls.clientCaFile` says who may call."""
    stale_after_seconds: float = 21600.0
    """An alert that is neither repeated nor resolved for so long fades. It must be longer than
    Alertmanager's `repeat_interval` (4 hours by default)."""

    def __post_init__(self) -> None:
        self.tls.check("alertmanager", "files")
        check(
            "alertmanager",
            not self.listen or self.listen.rpartition(":")[2].isdecimal(),
            f"listen {self.listen[:LONGEST_NAME]!r} must be HOST:PORT, such as :8094",
        )
        check(
            "alertmanager",
            60 <= self.stale_after_seconds < inf,
            "staleAfterSeconds must be at least 60",
        )
