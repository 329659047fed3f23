"""Certificates that somebody else keeps in files."""

import time
from pathlib import Path

import pytest

from certs import issuing
from certs.files import FromFiles, client_authority
from certs.issuing import DAY_S, Pair
from fettle.config import TLSSettings
from fettle.model import CertificateError


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
    files = FromFiles(write(tmp_path, pair))
    write(tmp_path, pair)
    assert not files.reload()
    assert files.serving.pair == pair


def test_new_content_is_served(root: Pair, tmp_path: Path) -> None:
    files = FromFiles(write(tmp_path, leaf(root)))
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
    files = FromFiles(
        TLSSettings(certificate_file=str(link / "tls.crt"), key_file=str(link / "tls.key"))
    )
    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").rename(link)
    assert files.reload()


def test_a_half_written_pair_keeps_the_old_one_until_the_other_half_comes(
    root: Pair, tmp_path: Path
) -> None:
    before, after = leaf(root), leaf(root)
    files = FromFiles(write(tmp_path, before))
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
    files = FromFiles(
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
        FromFiles(settings)


def test_a_setting_left_out_is_named() -> None:
    with pytest.raises(CertificateError, match=r"tls\.certificateFile is not set"):
        FromFiles(TLSSettings())


def test_a_client_authority_can_be_had_alone(root: Pair, tmp_path: Path) -> None:
    file = tmp_path / "clients.crt"
    settings = TLSSettings(client_ca_file=str(file))
    with pytest.raises(CertificateError, match=r"clientCaFile: .*clients\.crt: No such file"):
        client_authority(settings)
    file.write_bytes(root.certificate)
    assert client_authority(settings) == root.certificate
