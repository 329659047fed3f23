"""Which certificates the two listeners are served with, and what may be served without any."""

from fettle.client import Session
from fettle.config import ExtenderSettings, Settings
from fettle.model import SettingsError
from fettle.serve.listening import ListenAddress
from fettle.serve.secured import FileCertificate, Secured
from fettle.serve.self_signed import SelfSignedExtender, SelfSignedWebhook


def signs_for_extender(settings: ExtenderSettings) -> bool:
    """Whether the extender's certificate is signed by an authority that the cluster keeps."""
    return settings.certificates == "self" and settings.tls.client_ca_file is not None


async def extender(address: ListenAddress, settings: Settings, session: Session | None) -> Secured:
    """By `extender.certificates`, and plain HTTP on loopback where no client CA says who may call.

    Raises SettingsError, CertificateError, and ClusterError where it must ask the API server.
    """
    tls = settings.extender.tls
    if tls.client_ca_file is None and not address.loopback:
        raise SettingsError(
            f"--extender-listen {address} is not loopback: set extender.tls.clientCaFile, since "
            "the scheduler's client certificate is the only proof of its identity, or listen on "
            "127.0.0.1"
        )
    if settings.extender.certificates == "files":
        return FileCertificate("extender", tls).secured()
    if not signs_for_extender(settings.extender):
        return Secured(None)
    if session is None:
        raise SettingsError(
            'without a cluster there is no Secret for extender.certificates "self": use "files", '
            "or leave extender.tls.clientCaFile out and listen on 127.0.0.1"
        )
    return await SelfSignedExtender(address, settings, session).secured()


async def webhook(address: ListenAddress, settings: Settings, session: Session | None) -> Secured:
    """By `webhook.certificates`; raises SettingsError, ClusterError, CertificateError.

    Without a cluster only this host can call: plain HTTP on loopback.
    """
    if settings.webhook.certificates == "files":
        return FileCertificate("webhook", settings.webhook.tls).secured()
    if session is None:
        if not address.loopback:
            raise SettingsError(
                f"--webhook-listen {address} is not loopback, and without a cluster there is no "
                'Secret for webhook.certificates "self": use "files", or listen on 127.0.0.1'
            )
        return Secured(None)
    return await SelfSignedWebhook(address, settings, session).secured()
