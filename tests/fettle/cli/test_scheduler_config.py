"""`fettle scheduler-config`: what it changes in configurations of kube-schedulers, and what stays.
`tests/controlplane/test_scheduler_config.py` starts kube-scheduler with them."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fettle.cli.configurations import COMMENTED, EMPTY, HEAD, OTHER, REFUSED, USABLE
from tests.fettle.cli.linted import called

MARKER = {"name": "fettle.dev/claims", "ignoredByScheduler": True}
REMOTE = "https://10.96.0.88:8088"


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return called("scheduler-config", *map(str, arguments))


def written(text: str, folder: Path) -> Path:
    file = folder / "scheduler.yaml"
    file.write_bytes(text.encode())
    return file


def merged(text: str, folder: Path, *arguments: str) -> str:
    file = written(text, folder)
    ran = command("--in", file, "--write", *arguments)
    assert ran.returncode == 0, ran.stderr
    return file.read_bytes().decode()


def entries(text: str) -> list[Any]:
    (configuration,) = [d for d in yaml.load_all(text, yaml.CSafeLoader) if d]
    found: list[Any] = configuration["extenders"]
    return found


def resources(entry: Any) -> list[str]:
    return [one["name"] for one in entry["managedResources"]]


@pytest.mark.parametrize("name", USABLE)
def test_only_lines_of_the_entry_are_added_and_remove_takes_exactly_these(
    name: str, tmp_path: Path
) -> None:
    before = USABLE[name]
    after = merged(before, tmp_path)
    assert after != before
    (wanted,) = [d for d in yaml.load_all(before, yaml.CSafeLoader) if d]
    (found,) = [d for d in yaml.load_all(after, yaml.CSafeLoader) if d]
    *others, ours = found.pop("extenders")
    assert others == wanted.pop("extenders", [])
    assert found == wanted
    assert ours["urlPrefix"] == "http://127.0.0.1:8088"
    assert ours["managedResources"][-1] == MARKER
    assert merged(after, tmp_path, "--remove") == before


@pytest.mark.parametrize("name", [*USABLE, *EMPTY])
def test_a_second_run_changes_nothing(name: str, tmp_path: Path) -> None:
    text = {**USABLE, **EMPTY}[name]
    file = written(merged(text, tmp_path, "--mode", "enforce"), tmp_path)
    ran = command("--in", file, "--write")
    assert (ran.returncode, ran.stdout) == (0, "")
    assert ran.stderr.startswith(f"{file} needs no change.")
    assert entries(file.read_text())[-1]["ignorable"] is False, "as it was"


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_list_becomes_one_with_the_entry_and_its_comment_stays(
    name: str, tmp_path: Path
) -> None:
    after = merged(EMPTY[name], tmp_path)
    assert [one["weight"] for one in entries(after)] == [5]
    assert ("# none yet" in EMPTY[name]) == ("# none yet" in after)


@pytest.mark.parametrize("name", REFUSED)
def test_what_kube_scheduler_would_not_start_with_is_refused_in_one_sentence(
    name: str, tmp_path: Path
) -> None:
    text, said = REFUSED[name]
    file = written(text, tmp_path)
    ran = command("--in", file, "--write")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"fettle: {file}: ")
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert file.read_bytes() == text.encode()


def test_what_is_too_entangled_to_be_changed_is_refused(tmp_path: Path) -> None:
    shared = "&them\n- urlPrefix: http://a\n"
    text = (
        f"{HEAD}extenders: {shared}profiles:\n- pluginConfig: [{{name: a, args: {{b: *them}}}}]\n"
    )
    ran = command("--in", written(text, tmp_path), "--write")
    assert ran.returncode == 1
    assert "anchors (&) and aliases (*)" in ran.stderr


def test_files_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    assert "No such file or directory" in command("--in", tmp_path / "absent.yaml").stderr
    (tmp_path / "latin.yaml").write_bytes(b"# caf\xe9\n")
    assert "byte 6 is no UTF-8" in command("--in", tmp_path / "latin.yaml").stderr
    (tmp_path / "large.yaml").write_bytes(b"#" * (1024 * 1024 + 1))
    assert "larger than" in command("--in", tmp_path / "large.yaml").stderr
    deep = written(f"{HEAD}profiles: {'[' * 5000}{']' * 5000}\n", tmp_path)
    assert "nested more than" in command("--in", deep).stderr


def test_without_write_the_difference_is_shown_and_nothing_written(tmp_path: Path) -> None:
    before = USABLE["no line break at the end"]
    file = written(before, tmp_path)
    ran = command("--in", file)
    assert file.read_text() == before
    assert "Nothing is written." in ran.stderr
    (tmp_path / "difference").write_text(ran.stdout)
    patch = ["patch", str(file), "difference"]
    subprocess.run(patch, cwd=tmp_path, check=True, capture_output=True, timeout=10)
    assert file.read_text() == merged(before, tmp_path)


def test_the_way_back_is_said_and_leads_back(tmp_path: Path) -> None:
    file = written(COMMENTED, tmp_path)
    ran = command("--in", file, "--write")
    assert f"`fettle scheduler-config --in {file} --remove --write`" in ran.stderr
    once = file.read_text()
    ran = command("--in", file, "--write", "--mode", "enforce", "--resource", "example.com/npu")
    assert f"`patch --reverse {file}`" in ran.stderr
    back = ["patch", "--reverse", str(file)]
    subprocess.run(back, input=ran.stdout, text=True, check=True, capture_output=True, timeout=10)
    assert file.read_text() == once


@pytest.mark.parametrize("name", [*USABLE, *EMPTY])
def test_the_way_back_that_is_said_gives_back_the_file_that_was_there(
    name: str, tmp_path: Path
) -> None:
    before = {**USABLE, **EMPTY}[name]
    file = written(before, tmp_path)
    ran = command("--in", file, "--write")
    if f"`patch --reverse {file}`" in ran.stderr:
        assert name in EMPTY, "the shorter way is said where it leads back"
        back = ["patch", "--reverse", str(file)]
        subprocess.run(back, input=ran.stdout, text=True, check=True, timeout=10)
    else:
        assert f"--in {file} --remove --write" in ran.stderr
        command("--in", file, "--remove", "--write")
    assert file.read_bytes() == before.encode()


def test_a_kubeconfig_that_was_written_too_is_taken_back_by_the_way_that_is_said(
    tmp_path: Path,
) -> None:
    before = f"{HEAD}clientConnection: {{kubeconfig: /a}}\n"
    file = written(before, tmp_path)
    ran = command("--in", file, "--write", "--scheduler-kubeconfig", "/b")
    assert f"`patch --reverse {file}`" in ran.stderr
    back = ["patch", "--reverse", str(file)]
    subprocess.run(back, input=ran.stdout, text=True, check=True, timeout=10)
    assert file.read_text() == before


def test_a_written_file_keeps_its_rights_and_a_link_stays_one(tmp_path: Path) -> None:
    file = written(HEAD, tmp_path)
    file.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(file)
    assert command("--in", link, "--write").returncode == 0
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert entries(file.read_text())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.yaml", "scheduler.yaml"]


@pytest.mark.parametrize(("mode", "ignorable"), [("observe", 1), ("steer", 1), ("enforce", 0)])
def test_the_mode_says_whether_pods_wait_while_fettle_is_away(
    mode: str, ignorable: int, tmp_path: Path
) -> None:
    for before in (HEAD, merged(HEAD, tmp_path, "--mode", "enforce"), merged(HEAD, tmp_path)):
        (entry,) = entries(merged(before, tmp_path, "--mode", mode))
        assert entry["ignorable"] is bool(ignorable)


def test_an_address_off_loopback_comes_with_certificates_and_goes_with_them(tmp_path: Path) -> None:
    remote = merged(COMMENTED, tmp_path, "--url", f"{REMOTE}/")
    entry = entries(remote)[-1]
    assert (entry["urlPrefix"], entry["enableHTTPS"]) == (REMOTE, True)
    tls = entry["tlsConfig"]
    assert set(tls) == {"serverName", "caFile", "certFile", "keyFile"}
    own = remote.replace(tls["caFile"], "/my/ca.crt").replace("weight: 5", "weight: 3")
    kept = entries(merged(own, tmp_path, "--url", "https://10.96.0.99:8088"))[-1]
    assert kept["tlsConfig"]["caFile"] == "/my/ca.crt"
    assert kept["weight"] == 3
    local = merged(remote, tmp_path, "--url", "http://127.0.0.1:8088")
    assert local == merged(COMMENTED, tmp_path)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://10.96.0.88:8088", "plain HTTP on loopback only: write https"),
        ("https://10.96.0.88", "write an address with a port"),
        ("10.96.0.88:8088", "write an address with a port"),
        ("https://[::1:8088", "write an address with a port"),
        ("https://fettle extender:8088", "write an address with a port"),
        ("https://fettle\x1b[31m:8088", "write an address with a port"),
    ],
)
def test_an_address_at_which_fettle_never_answers_is_refused(url: str, said: str) -> None:
    ran = command("--url", url)
    assert ran.returncode == 2
    assert said in " ".join(ran.stderr.split())


@pytest.mark.parametrize(
    "name",
    ["gpu", "cpu", "requests.nvidia.com/gpu", "deviceclass.resource.kubernetes.io/gpu", "a.b/c d"],
)
def test_a_resource_that_cannot_be_listed_is_refused(name: str) -> None:
    ran = command("--resource", name)
    assert ran.returncode == 2
    assert "write an extended resource such as" in " ".join(ran.stderr.split())


def test_named_resources_are_listed_instead_of_the_usual_ones(tmp_path: Path) -> None:
    named = ("--resource", "example.com/npu", "--resource", "nvidia.com/gpu")
    (entry,) = entries(merged(HEAD, tmp_path, *named, *named))
    assert resources(entry) == ["example.com/npu", "nvidia.com/gpu", MARKER["name"]]


def test_what_is_listed_stays_and_what_is_named_comes_to_it(tmp_path: Path) -> None:
    one = merged(HEAD, tmp_path, "--resource", "example.com/npu")
    assert merged(one, tmp_path) == one, "the usual ones are for a new entry"
    (entry,) = entries(merged(one, tmp_path, "--resource", "nvidia.com/gpu"))
    assert resources(entry) == ["example.com/npu", MARKER["name"], "nvidia.com/gpu"]


def test_a_resource_of_another_extender_is_left_out_and_said(tmp_path: Path) -> None:
    """kube-scheduler does not start if two list it."""
    theirs = OTHER.replace("hami.io/vgpu", "nvidia.com/gpu")
    file = written(f"{HEAD}extenders:\n{theirs}", tmp_path)
    ran = command("--in", file, "--write")
    assert "nvidia.com/gpu is left out: the extender at http://127.0.0.1:9999/" in ran.stderr
    ours = entries(file.read_text())[-1]
    assert "nvidia.com/gpu" not in resources(ours)
    assert "amd.com/gpu" in resources(ours)
    again = command("--in", file)
    assert "left out" not in again.stderr, "nothing would be added"
    named = command("--in", file, "--resource", "nvidia.com/gpu")
    assert (named.stdout, "left out" in named.stderr) == ("", True)


MISTAKEN = {
    "block style": f"""\
{HEAD}\
extenders:
{OTHER}\
- bindVerb: bind
  urlPrefix: http://127.0.0.1:8088/ # here
  filterVerb: predicate
  nodeCacheCapable: false   # why not
  weight: 2
  managedResources:
  - name: fettle.dev/claims # ours
  - name: nvidia.com/gpu
profiles: []
""",
    "flow style": f"""\
{HEAD}\
extenders:
- {{urlPrefix: http://127.0.0.1:9999/scheduler, filterVerb: filter, bindVerb: bind, ignorable: true,
   managedResources: [{{name: hami.io/vgpu, ignoredByScheduler: true}}]}}
- {{bindVerb: bind, urlPrefix: "http://127.0.0.1:8088/", filterVerb: predicate, # here
   nodeCacheCapable: false, weight: 2, # why not
   managedResources: [{{name: fettle.dev/claims}}, {{name: nvidia.com/gpu}}]}} # ours
profiles: []
""",
}


@pytest.mark.parametrize("style", MISTAKEN)
def test_an_entry_that_is_there_is_put_right_and_not_doubled(style: str, tmp_path: Path) -> None:
    after = merged(MISTAKEN[style], tmp_path)
    other, ours = entries(after)
    assert other == yaml.safe_load(OTHER)[0]
    assert ours == {
        "urlPrefix": "http://127.0.0.1:8088/",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "nodeCacheCapable": True,
        "weight": 2,
        "httpTimeout": "2s",
        "managedResources": [MARKER, {"name": "nvidia.com/gpu"}],
    }
    assert all(comment in after for comment in ("# here", "# why not", "# ours"))


@pytest.mark.parametrize("weight", ["0", "-1", "", "'5'"])
def test_a_weight_that_kube_scheduler_does_not_start_with_becomes_the_shipped_one(
    weight: str, tmp_path: Path
) -> None:
    """An entry that does not prioritize yet may have any: kube-scheduler looks at none."""
    ours = f"- urlPrefix: http://127.0.0.1:8088\n  filterVerb: filter\n  weight: {weight}\n"
    (entry,) = entries(merged(f"{HEAD}extenders:\n{ours}", tmp_path))
    assert (entry["prioritizeVerb"], entry["weight"]) == ("prioritize", 5)


def test_an_entry_without_resources_gets_the_usual_ones(tmp_path: Path) -> None:
    """Without any, kube-scheduler asks about every pod."""
    text = f"{HEAD}extenders:\n- urlPrefix: http://127.0.0.1:8088\n  managedResources: []\n"
    (entry,) = entries(merged(text, tmp_path))
    assert resources(entry) == resources(entries(merged(HEAD, tmp_path))[0])


def test_it_says_what_else_the_profiles_need(tmp_path: Path) -> None:
    ran = command("--in", written(USABLE["three profiles"], tmp_path))
    assert "`scheduler: {names: [default-scheduler, bin-packing, no-scoring]}`" in ran.stderr
    ran = command("--in", written(USABLE["one profile"], tmp_path))
    assert "names" not in ran.stderr


def test_names_of_profiles_and_addresses_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    others = '- urlPrefix: "http://a\\e[2J"\n  managedResources: [{name: nvidia.com/gpu}]\n'
    names = 'profiles:\n- schedulerName: "x\\e]0;y\\a"\n'
    ran = command("--in", written(f"{HEAD}extenders:\n{others}{names}", tmp_path))
    assert "nvidia.com/gpu is left out: the extender at http://a" in ran.stderr
    assert "Its profiles are x" in ran.stderr
    assert ran.stderr.replace("\n", "").isprintable()


def test_it_says_what_the_first_extender_costs_those_who_may_have_it(tmp_path: Path) -> None:
    unspread = "profiles: [{pluginConfig: [{name: PodTopologySpread, args: {}}]}]\n"
    ran = command("--in", written(HEAD + unspread, tmp_path))
    assert "OpportunisticBatching" in ran.stderr
    for text in (HEAD, f"{HEAD}extenders:\n{OTHER}{unspread}"):
        assert "OpportunisticBatching" not in command("--in", written(text, tmp_path)).stderr


def test_without_a_file_a_whole_new_configuration_is_printed() -> None:
    ran = command("--scheduler-kubeconfig", "/var/lib/rancher/scheduler.kubeconfig")
    made = yaml.safe_load(ran.stdout)
    assert made["clientConnection"] == {"kubeconfig": "/var/lib/rancher/scheduler.kubeconfig"}
    assert made["leaderElection"] == {"leaderElect": True}
    assert len(made["extenders"]) == 1


def test_the_kubeconfig_of_kube_scheduler_goes_into_a_file_too(tmp_path: Path) -> None:
    after = merged(COMMENTED, tmp_path, "--scheduler-kubeconfig", "/other")
    assert 'clientConnection: {kubeconfig: "/other"}   # its account\n' in after
    after = merged(HEAD, tmp_path, "--scheduler-kubeconfig", "/other")
    assert yaml.safe_load(after)["clientConnection"] == {"kubeconfig": "/other"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--write",),
        ("--remove",),
        ("--in", "x", "--remove", "--mode", "observe"),
        ("--in", "x", "--kubeconfig", "y"),
    ],
)
def test_flags_that_say_nothing_together_are_refused(arguments: tuple[str, ...]) -> None:
    assert command(*arguments).returncode == 2


def test_there_is_nothing_to_remove_where_fettle_is_not(tmp_path: Path) -> None:
    ran = command("--in", written(f"{HEAD}extenders:\n{OTHER}", tmp_path), "--remove")
    assert ran.returncode == 1
    assert "it has no entry for Fettle: there is nothing to take out" in ran.stderr


def test_a_folder_is_an_error_that_says_which_file_to_name(tmp_path: Path) -> None:
    ran = command("--in", tmp_path)
    assert ran.returncode == 1
    assert ran.stderr == (
        f"fettle: {tmp_path} is a folder: give the file in it that kube-scheduler's flag --config "
        "names\n"
    )


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"])
def test_our_entry_is_known_by_any_name_of_loopback(host: str, tmp_path: Path) -> None:
    before = f"{HEAD}extenders:\n- urlPrefix: http://{host}:8088/\n  filterVerb: filter\n"
    (entry,) = entries(merged(before, tmp_path))
    assert entry["urlPrefix"] == f"http://{host}:8088/"
    assert "preemptVerb" in entry


@pytest.mark.parametrize(
    "url",
    ["http://localhost:8089", "http://localhost:8088/other", "http://[", "https://localhost:8088"],
)
def test_what_is_elsewhere_is_not_ours(url: str, tmp_path: Path) -> None:
    before = f"{HEAD}extenders:\n- urlPrefix: {url!r}\n  filterVerb: filter\n"
    assert len(entries(merged(before, tmp_path))) == 2


@pytest.mark.parametrize("verb", ["filterVerb: predicates", "bindVerb: bind"])
def test_the_entry_of_another_at_our_address_is_neither_overwritten_nor_taken_out(
    verb: str, tmp_path: Path
) -> None:
    before = f"{HEAD}extenders:\n- urlPrefix: http://127.0.0.1:8088\n  {verb}\n"
    file = written(before, tmp_path)
    ran = command("--in", file, "--write")
    assert ran.returncode != 0
    assert f"extenders[0] is at Fettle's address, but has `{verb}`" in ran.stderr
    assert "there is nothing to take out" in command("--in", file, "--write", "--remove").stderr
    assert file.read_text() == before
    theirs, _ = entries(merged(before, tmp_path, "--url", "http://127.0.0.1:8089"))
    assert verb in yaml.safe_dump(theirs)
    (ours,) = entries(merged(before, tmp_path, "--url", "http://127.0.0.1:8088"))
    assert ours["filterVerb"] == "filter"


def test_of_many_profiles_and_resources_some_are_named(tmp_path: Path) -> None:
    names = [f"scheduler-{number}-{'x' * 3000}" for number in range(300)]
    profiles = "".join(f"- schedulerName: {name}\n" for name in names)
    listed = "".join(f"  - name: example.com/gpu-{number}\n" for number in range(300))
    other = f"extenders:\n- urlPrefix: http://other:1\n  managedResources:\n{listed}"
    file = written(f"{HEAD}profiles:\n{profiles}{other}", tmp_path)
    wanted = [part for n in range(300) for part in ("--resource", f"example.com/gpu-{n}")]
    ran = command("--in", file, *wanted)
    assert ran.returncode == 0, ran.stderr
    assert "and 292 more" in ran.stderr
    assert len(ran.stderr) < 8000
