"""The status of the pod's CA, as claw certs status and claw up report it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from claw_certs.status import ca_status
from tests.certs.example_cas import NOW, pods_ca


@pytest.mark.requirement("certs:status")
def test_a_rotation_is_due_from_thirty_days_before_the_end(tmp_path: Path) -> None:
    pods_ca(tmp_path)
    for day, expires_soon in ((334, False), (336, True), (366, False)):
        ca = ca_status(tmp_path, ["api.openai.com"], NOW + timedelta(days=day), "claw-pod.yml")
        assert any("expires on" in problem.text for problem in ca.problems) is expires_soon
        assert ca.is_sound is (day < 366)
