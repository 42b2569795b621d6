"""``web_fetch`` in a network of its own, with a public address, a DNS server and
the system's resolver.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.not_tested import need, skip_for_kernel

PUBLIC, ROOT = "93.184.216.34", Path(__file__).parents[3]

PRIVATE = (
    "an address of this host is private: an operator can open it with url_policy.allow_private."
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run ``network`` in namespaces of its own; return what it found."""
    need("ip")
    home = tmp_path_factory.mktemp("network")
    rights = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = [need("unshare"), *rights, "--net", "--mount", "--", sys.executable]
    command = [*unshare, "-m", "tests.tools.web.network", PUBLIC, str(home)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode and "unshare" in done.stderr.partition("\n")[0]:
        skip_for_kernel("network namespaces", done.stderr)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.requirement("fetch:result")
def test_a_public_address_needs_no_setting(found: Any) -> None:
    assert found["literal"]["text"] == found["named"]["text"] == "public"
    assert found["named"]["url"] == "http://steady.example/"


@pytest.mark.requirement("fetch:rebinding")
def test_a_name_that_is_public_first_and_private_then_is_only_reached_at_its_public_address(
    found: Any,
) -> None:
    assert found["rebinding"] == [
        "public",
        (
            "an address of this host is private: an operator can open it with "
            "url_policy.allow_private."
        ),
    ]
    assert found["asked"]["rebinding.example."] == 2
    assert found["reached inside"] == 0


@pytest.mark.requirement("fetch:redirects", "fetch:every-answer")
def test_a_public_page_leads_to_no_private_one(found: Any) -> None:
    assert found["redirected"] == found["mixed"] == found["localhost"] == PRIVATE
    assert (
        found["metadata"]
        == "an address of this host is link-local or a metadata service, which no setting opens."
    )
