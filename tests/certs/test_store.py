"""The CA on the disk: modes, symlinks, concurrent verbs, kills at every step, and
the two steps of a rotation.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from claw_certs.ca import UnfitError
from claw_certs.store import finish, init, load_public_cas, pem_certificates, read_store, rotate
from tests.certs.example_cas import NOW, OUTSIDE, PUBLIC, ca_request, pods_ca
from tests.proxy.pod import ROOT

SYSTEM = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
KILLED = """
import os, sys
from pathlib import Path
from claw_certs.store import finish, init, read_store, rotate
from tests.certs.example_cas import NOW, OUTSIDE, PUBLIC, ca_request

STEPS = {"os.rename", "os.mkdir", "os.remove", "os.chmod", "open"}
verbs = {"init": init, "force": lambda *of: init(*of, force=True), "rotate": rotate, "finish": finish}
verb, home = verbs[sys.argv[1]], Path(sys.argv[2])
last = False
for step in range(200):
    place = home / f"{step}"
    if sys.argv[1] != "init":
        init(place, ca_request(), PUBLIC, None)
    if sys.argv[1] in {"finish", "force"}:
        rotate(place, ca_request(), PUBLIC, None)
    child = os.fork()
    if child == 0:
        seen = -1
        def die(event, _):
            global seen
            seen += event in STEPS
            if seen == step:
                os._exit(9)
        of = (place, NOW, PUBLIC, None) if sys.argv[1] == "finish" else (place, ca_request(OUTSIDE), PUBLIC, None)
        sys.addaudithook(die)
        verb(*of)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
print(step)
"""


def modes(directory: Path) -> dict[str, int]:
    return {
        str(path.relative_to(directory)): stat.S_IMODE(path.stat().st_mode)
        for path in directory.rglob("*")
    }


@pytest.mark.requirement("certs:files")
def test_modes_of_private_and_public_files_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        pods_ca(tmp_path)
        rotate(tmp_path, ca_request(), SYSTEM, None)
    finally:
        os.umask(before)
    files = {"mitmproxy-ca.pem": 0o600, "next-ca.pem": 0o600, "mitmproxy-dhparam.pem": 0o600}
    private = {"private": 0o700} | {f"private/{name}": mode for name, mode in files.items()}
    assert modes(tmp_path) == private | {
        "public": 0o755,
        "public/ca-cert.pem": 0o644,
        "public/ca-bundle.pem": 0o644,
    }
    bundle = (tmp_path / "public" / "ca-bundle.pem").read_bytes()
    assert bundle == SYSTEM + (tmp_path / "public" / "ca-cert.pem").read_bytes()
    assert b"PRIVATE" not in bundle


@pytest.mark.requirement("certs:files")
def test_an_existing_key_is_kept_unless_forced(tmp_path: Path) -> None:
    first = pods_ca(tmp_path)
    assert pods_ca(tmp_path, "other.example") == first
    again = init(tmp_path, ca_request("other.example"), PUBLIC, None, force=True)
    assert again.signing is not None
    assert again.signing.permitted == ("other.example",)
    assert again != first
    assert again.is_trusted


@pytest.mark.requirement("certs:files")
@pytest.mark.parametrize("link", ["private", "public", "private/mitmproxy-ca.pem"])
def test_no_symlink_is_followed(tmp_path: Path, link: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = tmp_path / "ca"
    (place / link).parent.mkdir(parents=True)
    (place / link).symlink_to(elsewhere)
    with pytest.raises(OSError, match="symlink"):
        pods_ca(place)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.requirement("certs:files")
def test_the_directory_itself_may_not_be_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "ca").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symlink"):
        pods_ca(tmp_path / "ca")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.requirement("certs:files")
def test_concurrent_verbs_create_one_ca(tmp_path: Path) -> None:
    make = (
        "import sys; from pathlib import Path; from tests.certs.example_cas import pods_ca; "
        "pods_ca(Path(sys.argv[1]))"
    )
    command = [
        sys.executable,
        "-c",
        f"{make}; print(pods_ca(Path(sys.argv[1])).signing.name)",
        str(tmp_path / "ca"),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    names = {process.communicate(timeout=100)[0] for process in running}
    signing = read_store(tmp_path / "ca").signing
    assert signing is not None
    assert names == {f"{signing.name}\n"}


@pytest.mark.requirement("certs:killed")
@pytest.mark.parametrize("verb", ["init", "force", "rotate", "finish"])
def test_a_kill_at_any_step_leaves_a_whole_ca_or_none_and_the_verb_repairs_it(
    tmp_path: Path, verb: str
) -> None:
    """Kill the verb at each of its file operations.

    Each kill is in a fork of one process, because the imports take longest.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", KILLED, verb, str(tmp_path)]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert result.returncode == 0, result.stderr
    steps = int(result.stdout)
    assert steps > 10
    for step in range(steps):
        place = tmp_path / str(step)
        left = read_store(place)  # raises for half a file, or a certificate without its key
        # Runners trust the signing CA at every step, except before there is one, and when another
        # replaces it by force.
        if verb in {"rotate", "finish"}:
            assert left.signing is not None
            assert left.signing.root_pem.strip() in {each.strip() for each in left.trusted}
        if verb == "finish" and left.next is None:
            with pytest.raises(UnfitError, match="no rotation"):
                finish(place, NOW, PUBLIC, None)
            mended = init(place, ca_request(), PUBLIC, None)
        elif verb == "finish":
            mended = finish(place, NOW, PUBLIC, None)
        else:
            mended = (rotate if verb == "rotate" else init)(place, ca_request(), PUBLIC, None)
        assert mended.is_trusted
        assert mended.signing is not None
        if verb == "force" and mended.signing.permitted == (OUTSIDE,):
            assert mended.next is None  # the CA that was staged before is no longer trusted
        assert not [path for path in place.rglob("*") if path.name.endswith(".new")]


@pytest.mark.requirement("certs:rotation")
def test_a_rotation_first_trusts_the_new_ca_and_then_lets_it_sign(tmp_path: Path) -> None:
    with pytest.raises(UnfitError, match="no CA yet"):
        rotate(tmp_path, ca_request(), PUBLIC, None)
    old = pods_ca(tmp_path)
    with pytest.raises(UnfitError, match="no rotation"):
        finish(tmp_path, NOW, PUBLIC, None)
    assert read_store(tmp_path) == old
    both = rotate(tmp_path, ca_request("new.example"), PUBLIC, None)
    assert (both.signing, len(both.trusted)) == (old.signing, 2)
    assert rotate(tmp_path, ca_request("newer.example"), PUBLIC, None) == both
    new = finish(tmp_path, NOW, PUBLIC, None)
    assert (new.signing, new.next, len(new.trusted)) == (both.next, None, 1)
    assert new.signing is not None
    assert new.signing.permitted == ("new.example",)


@pytest.mark.requirement("certs:files")
def test_only_certificates_are_copied_from_a_file_of_public_cas(tmp_path: Path) -> None:
    file = tmp_path / "cas.pem"
    file.write_bytes(
        b"# mine\n-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n" + SYSTEM
    )
    assert load_public_cas(file) == (file, SYSTEM)
    file.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="holds no certificate"):
        load_public_cas(file)
    place, content = load_public_cas(None)
    assert place.is_file()
    assert len(pem_certificates(content)) > 50
