"""One damaged byte in any file of a pod gives diagnostics or a pod, never a
traceback, and shows no secret.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from claw_compile.codes import CODES
from claw_compile.compiler import check_pod, preview
from claw_compile.diagnostics.report import as_github, as_json, as_sarif, as_text
from claw_compile.lock_update import lock_pod
from tests.compile.planted import DOTENV, ENVIRON, POD, planted_pod
from tests.search_size import scale_examples

BASE = (
    "services:\n  base: &b\n    env_file: [{path: ../two.env, format: raw}]\n    environment: "
    "{LEVEL: '${LEVEL:-1}'}\n"
)
DAMAGED = (
    "claw-pod.yml",
    ".env",
    "claw.lock",
    "two.env",
    "kept.env",
    "held.txt",
    "api/Dockerfile",
    "AGENTS.md",
    "more/b.yml",
)
REPORTS = (as_text, as_json, as_sarif, as_github)
SECRETS = [*ENVIRON.values(), *DOTENV.values()]


def sound(directory: Path) -> Path:
    pod = planted_pod(directory)
    (directory / "more").mkdir()
    (directory / "more" / "b.yml").write_text(BASE, encoding="utf-8")
    two = (
        "  two:\n    build: api\n    volumes: [./kept.env:/kept.env]\n    extends: {file: "
        "more/b.yml, service: base}\n"
    )
    pod.write_text(POD.replace("  two:\n", two), encoding="utf-8")
    lock_pod(pod, ENVIRON)
    return pod


@pytest.mark.requirement("compile:no-traceback", "compile:planted-secrets")
@pytest.mark.parametrize("name", DAMAGED)
def test_one_damaged_byte_of_any_file_gives_diagnostics(tmp_path: Path, name: str) -> None:
    pod = sound(tmp_path / "pod")
    assert check_pod(pod, ENVIRON).value is not None
    file = pod.parent / name
    data = file.read_bytes()

    @settings(
        max_examples=scale_examples(200),
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(
        st.integers(0, len(data) - 1),
        st.integers(0, 255),
        st.sampled_from(["change", "insert", "drop", "cut"]),
    )
    def judge(at: int, byte: int, how: str) -> None:
        put = b"" if how in {"drop", "cut"} else bytes([byte])
        rest = b"" if how == "cut" else data[at if how == "insert" else at + 1 :]
        file.write_bytes(data[:at] + put + rest)
        result = check_pod(pod, ENVIRON)
        assert (result.value is None) == any(
            diagnostic.is_error for diagnostic in result.diagnostics
        )
        assert all(
            diagnostic.code.name in CODES and diagnostic.span.line >= 1
            for diagnostic in result.diagnostics
        )
        if result.value is not None:
            preview(result.value)
        reported = "".join(report(result.diagnostics) for report in REPORTS)
        assert not [value for value in SECRETS if value in reported]

    judge()
