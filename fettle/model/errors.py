"""Every error Fettle raises, in one tree.

    FettleError
    ├── BadInput             what a caller sent cannot be read; answered with a 4xx
    ├── SettingsError        a settings file, flag or policy is wrong
    ├── SnapshotError        a snapshot folder or file cannot be read
    ├── CertificateError     a key or certificate is missing, unreadable or does not match
    │   └── AuthorityError   the Secret that holds our authority cannot be used, until it is mended
    ├── WorkerError          a worker process cannot be started, or died
    ├── PrometheusError      Prometheus refused a query, or cannot be reached
    └── ClusterError         the API server
        ├── Unreachable      no answer, or a 5xx
        │   └── Silent       a stream that said nothing for too long
        ├── Unauthorized     it does not know who we are (401)
        ├── Forbidden        RBAC refuses; says what to grant (403)
        │   └── Denied       an admission policy denies this one write (403)
        ├── NotServed        the API group, version or resource does not exist (404 on the resource)
        ├── NotFound         the object does not exist
        ├── Conflict         somebody else wrote first (409)
        ├── Invalid          the request or the object in it is refused as such (400, 413, 422)
        ├── BudgetSpent      a PodDisruptionBudget allows no eviction now
        └── Expired          the resourceVersion is too old (410): list again

The core raises only on programmer error; outcomes are values. Each face decides once, in its
shell, whether an error means allow or refuse. Messages are one sentence for the user: what was
wrong, where, and what to do.
"""


class FettleError(Exception):
    """The root; `str()` is one sentence for the user."""


class BadInput(FettleError):
    """What a caller sent cannot be read.

    `status` is the HTTP status to answer with, always 4xx.
    """

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class SettingsError(FettleError):
    """A settings file, a flag or a policy is wrong."""


class NoCluster(SettingsError):
    """No kubeconfig and no service account says where a cluster is."""


class SnapshotError(FettleError):
    """A snapshot folder or file cannot be read."""


class CertificateError(FettleError):
    """A key or certificate is missing, unreadable, expired or does not match."""


class AuthorityError(CertificateError):
    """The Secret that holds our certificate authority cannot be used; it may be mended any time."""


class WorkerError(FettleError):
    """A worker process cannot be started, or died."""


class PrometheusError(FettleError):
    """Prometheus refused a query, or gave no answer that can be used.

    `reason` is one word for metrics. `whole`: other queries would fare no better now.
    """

    def __init__(self, message: str, *, reason: str, whole: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.whole = whole


class ClusterError(FettleError):
    """The API server refused, or cannot be reached."""


class Unreachable(ClusterError):
    """The API server does not answer, or answers with 429 or a 5xx. `retry_after_s`: how long it
    asks not to be asked again; 0 if it does not say.
    """

    retry_after_s = 0.0


class Silent(Unreachable):
    """A stream said nothing for longer than a living one would."""


class Unauthorized(ClusterError):
    """The API server does not know who we are."""


class Forbidden(ClusterError):
    """RBAC refuses; the message says which verb on which resource to grant to whom."""


class Denied(Forbidden):
    """Not for want of a right: an admission policy or webhook denies this write, or its namespace
    ends; the message says which."""


class NotServed(ClusterError):
    """The API server does not serve this group, version or resource."""


class NotFound(ClusterError):
    """The object does not exist."""


class Conflict(ClusterError):
    """Somebody else created or changed the object first."""


class Invalid(ClusterError):
    """The API server refuses the request, or the object in it, as such."""


class BudgetSpent(ClusterError):
    """A PodDisruptionBudget does not allow the eviction now; the message says which, and why."""


class Expired(ClusterError):
    """The resourceVersion is older than what the API server keeps: list again."""
