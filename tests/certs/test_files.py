"""Mode `files`: a certificate is reloaded from files, and operators hear of its validity."""

import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from certs import issuing
from certs.files import CertificateFiles, FileCertificate, read_client_ca
from certs.issuing import DAY_S, Pair
from certs.serving import CertificateWarnings
from fettle.config import TLSSettings
from fettle.model import CertificateError
from tests.certs.replicas import Clock


@pytest.fixture
def root() -> Pair:
    return issuing.root("test CA", now_s=time.time(), lifetime_s=DAY_S)


def write(folder: Path, pair: Pair) -> TLSSettings:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    return TLSSettings(certificate_file=str(folder / "tls.crt"), key_file=str(folder / "tls.key"))


def leaf(root: Pair) -> Pair:
    return issuing.leaf(root, ["localhost"], now_s=time.time())


def test_unchanged_files_change_nothing_even_when_they_are_written_again(
    root: Pair, tmp_path: Path
) -> None:
    pair = leaf(root)
    files = CertificateFiles(write(tmp_path, pair))
    write(tmp_path, pair)
    assert not files.reload()
    assert files.serving.pair == pair


def test_new_content_is_served(root: Pair, tmp_path: Path) -> None:
    files = CertificateFiles(write(tmp_path, leaf(root)))
    after = leaf(root)
    write(tmp_path, after)
    assert files.reload()
    assert files.serving.pair == after
    assert not files.reload()


def test_content_swapped_behind_a_symbolic_link_is_served(root: Pair, tmp_path: Path) -> None:
    """As the kubelet updates a Secret's volume: only the link of the folder changes."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, leaf(root))
    link = tmp_path / "data"
    link.symlink_to("one")
    files = CertificateFiles(
        TLSSettings(certificate_file=str(link / "tls.crt"), key_file=str(link / "tls.key"))
    )
    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").rename(link)
    assert files.reload()


def test_a_half_written_pair_keeps_the_old_one_until_the_other_half_comes(
    root: Pair, tmp_path: Path
) -> None:
    before, after = leaf(root), leaf(root)
    files = CertificateFiles(write(tmp_path, before))
    (tmp_path / "tls.crt").write_bytes(after.certificate)
    with pytest.raises(CertificateError, match="do not match"):
        files.reload()
    assert files.serving.pair == before
    (tmp_path / "tls.key").write_bytes(after.key)
    assert files.reload()
    assert files.serving.pair == after


def test_a_new_client_ca_alone_is_a_change(root: Pair, tmp_path: Path) -> None:
    settings = write(tmp_path, leaf(root))
    authority = tmp_path / "clients.crt"
    authority.write_bytes(root.certificate)
    files = CertificateFiles(
        TLSSettings(
            certificate_file=settings.certificate_file,
            key_file=settings.key_file,
            client_ca_file=str(authority),
        )
    )
    other = issuing.root("other", now_s=time.time(), lifetime_s=DAY_S)
    authority.write_bytes(other.certificate)
    assert files.reload()
    assert files.serving.client_ca == other.certificate


def test_a_missing_file_is_named(root: Pair, tmp_path: Path) -> None:
    settings = write(tmp_path, leaf(root))
    (tmp_path / "tls.key").unlink()
    with pytest.raises(CertificateError, match=r"keyFile: .*tls\.key: No such file"):
        CertificateFiles(settings)


def test_a_setting_left_out_is_named() -> None:
    with pytest.raises(CertificateError, match=r"tls\.certificateFile is not set"):
        CertificateFiles(TLSSettings())


def test_the_client_ca_can_be_read_alone(root: Pair, tmp_path: Path) -> None:
    file = tmp_path / "clients.crt"
    settings = TLSSettings(client_ca_file=str(file))
    with pytest.raises(CertificateError, match=r"clientCaFile: .*clients\.crt: No such file"):
        read_client_ca(settings)
    file.write_bytes(root.certificate)
    assert read_client_ca(settings) == root.certificate


HOUR_S = 3600.0


class Kept:
    """A certificate in files that the test replaces, at times that the test sets."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.file, self.key = folder / "tls.crt", folder / "tls.key"
        self.clients = folder / "clients.crt"
        self._root = issuing.root(
            "test CA", now_s=self.clock.now_s - 99 * DAY_S, lifetime_s=9999 * DAY_S
        )
        self.put(made_s=0, lifetime_s=90 * DAY_S)

    def put(self, *, made_s: float, lifetime_s: float) -> None:
        """One that was made that many seconds from now."""
        pair = issuing.leaf(
            self._root, ["localhost"], now_s=self.clock.now_s + made_s, lifetime_s=lifetime_s
        )
        self.write(pair)

    def write(self, pair: Pair) -> None:
        self.file.write_bytes(pair.certificate)
        self.key.write_bytes(pair.key)

    def put_clients(self, *lifetimes_s: float) -> None:
        """A client CA's certificates, made now."""
        made = (
            issuing.root("clients", now_s=self.clock.now_s, lifetime_s=lifetime_s).certificate
            for lifetime_s in lifetimes_s
        )
        self.clients.write_bytes(b"".join(made))

    def opened(self, listener: str = "webhook") -> FileCertificate:
        clients = str(self.clients) if self.clients.exists() else None
        tls = TLSSettings(
            certificate_file=str(self.file), key_file=str(self.key), client_ca_file=clients
        )
        return FileCertificate(listener, tls, clock=self.clock)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def warnings(told: CertificateWarnings) -> list[str]:
    """What is logged while nothing changes."""
    with capture_logs() as logged:
        for _ in range(5):
            told.check()
    return [entry["event"] for entry in logged if entry["log_level"] == "warning"]


def test_a_valid_certificate_gives_no_problem_and_no_note(kept: Kept) -> None:
    secured = kept.opened().tls()
    assert secured.problem() == ""
    assert secured.notes() == []
    assert warnings(CertificateWarnings(secured)) == []


@pytest.mark.parametrize("listener", ["webhook", "extender"])
def test_a_certificate_that_expired_before_the_start_makes_its_listener_unready(
    kept: Kept, listener: str
) -> None:
    kept.put(made_s=-DAY_S - HOUR_S, lifetime_s=DAY_S)
    secured = kept.opened(listener).tls()
    said = secured.problem()
    assert said.startswith(f"{listener}: the certificate in {kept.file} expired on 2027-01-15 ")
    assert "replace it and its key" in said
    assert warnings(CertificateWarnings(secured)) == [said]


def test_a_certificate_that_is_not_valid_yet_makes_its_listener_unready(kept: Kept) -> None:
    kept.put(made_s=3 * HOUR_S, lifetime_s=DAY_S)
    secured = kept.opened().tls()
    assert f"webhook: the certificate in {kept.file} is not valid before" in secured.problem()
    kept.clock.now_s += 2 * HOUR_S
    assert secured.problem() == ""


async def test_a_certificate_that_expires_while_served_is_a_problem_until_it_is_replaced(
    kept: Kept,
) -> None:
    files = kept.opened()
    secured = files.tls()
    kept.clock.now_s += 91 * DAY_S
    await files.reload()
    assert "expired" in secured.problem()
    kept.put(made_s=0, lifetime_s=DAY_S)
    await files.reload()
    assert secured.problem() == ""


async def test_an_expired_certificate_that_replaces_a_valid_one_is_a_problem(kept: Kept) -> None:
    files = kept.opened()
    secured = files.tls()
    kept.put(made_s=-DAY_S - HOUR_S, lifetime_s=DAY_S)
    await files.reload()
    assert "expired" in secured.problem()


def test_a_certificate_that_expires_soon_gives_a_note_and_is_still_served(kept: Kept) -> None:
    secured = kept.opened().tls()
    kept.clock.now_s += 84 * DAY_S
    assert secured.problem() == ""
    (note,) = secured.notes()
    assert note.startswith(f"webhook: the certificate in {kept.file} expires on 2027-04-15 ")
    kept.clock.now_s += 7 * DAY_S
    assert secured.notes() == []
    assert secured.problem() != ""


async def test_the_end_of_a_client_ca_is_noted_before_and_a_problem_after(
    kept: Kept,
) -> None:
    kept.put_clients(DAY_S, 30 * DAY_S)
    files = kept.opened("extender")
    secured = files.tls()
    kept.clock.now_s += 26 * DAY_S
    assert secured.notes() == []
    kept.clock.now_s += 2 * DAY_S
    (note,) = secured.notes()
    assert note.startswith(f"extender: the client CA in {kept.clients} expires on 2027-02-14 ")
    kept.clock.now_s += 3 * DAY_S
    assert secured.notes() == []
    assert secured.problem().startswith(f"extender: the client CA in {kept.clients} expired on ")
    assert "every caller is rejected" in secured.problem()
    kept.put_clients(DAY_S)
    await files.reload()
    assert secured.problem() == ""


async def test_files_that_cannot_be_served_are_noted_for_as_long_as_they_are_there(
    kept: Kept,
) -> None:
    files = kept.opened()
    secured = files.tls()
    pair = Pair(kept.file.read_bytes(), kept.key.read_bytes())
    kept.key.unlink()
    await files.reload()
    assert secured.notes() == [
        "webhook: certificate not reloaded, the old one stays: "
        f"tls.keyFile: {kept.key}: No such file or directory"
    ]
    kept.put(made_s=0, lifetime_s=DAY_S)
    kept.key.write_bytes(pair.key)
    await files.reload()
    (note,) = secured.notes()
    assert "do not match" in note
    assert secured.problem() == ""
    kept.write(pair)
    await files.reload()
    assert secured.notes() == []


async def test_a_warning_is_logged_once_and_again_after_a_recovery(kept: Kept) -> None:
    files = kept.opened()
    secured = files.tls()
    told = CertificateWarnings(secured)
    kept.clock.now_s += 84 * DAY_S
    (note,) = secured.notes()
    assert warnings(told) == [note]
    kept.clock.now_s += 7 * DAY_S
    problem = secured.problem()
    assert warnings(told) == [problem]
    assert warnings(told) == []
    expired = Pair(kept.file.read_bytes(), kept.key.read_bytes())
    kept.put(made_s=0, lifetime_s=90 * DAY_S)
    await files.reload()
    assert warnings(told) == []
    kept.write(expired)
    await files.reload()
    assert warnings(told) == [problem]


async def test_a_pair_of_which_half_was_replaced_for_a_moment_is_not_logged(kept: Kept) -> None:
    files = kept.opened()
    told = CertificateWarnings(files.tls())
    before = kept.key.read_bytes()
    kept.put(made_s=0, lifetime_s=DAY_S)
    after = kept.key.read_bytes()
    kept.key.write_bytes(before)
    with capture_logs() as logged:
        await files.reload()
        told.check()
        kept.key.write_bytes(after)
        await files.reload()
        told.check()
    assert [entry["event"] for entry in logged] == ["certificate reloaded"]
