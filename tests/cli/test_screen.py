"""Answers on standard output, and everything else on standard error."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.verbs import CLAW, OF_A_PART, OF_A_POD, run


@pytest.mark.requirement("cli:streams")
def test_what_is_no_answer_goes_to_standard_error_without_colors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = [run(verb) for verb in OF_A_POD if verb != "check"]
    refused += [run(verb, "someone") for verb in OF_A_PART] + [
        run("init", "A"),
        run("state"),
        run("nonsense"),
    ]
    for result in refused:
        assert result.exit_code in {1, 2}
        assert (result.stdout, bool(result.stderr)) == ("", True)
        assert "\x1b" not in result.stderr


@pytest.mark.requirement("cli:streams")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full, which refuses every byte")
def test_an_answer_that_cannot_be_written_is_one_line_and_an_error() -> None:
    for arguments in (["schema"], ["--version"]):
        with Path("/dev/full").open("w", encoding="utf-8") as full:
            refused = subprocess.run(
                [*CLAW, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert (refused.returncode, refused.stderr) == (1, "error: No space left on device\n")
    with subprocess.Popen(
        [*CLAW, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as left:
        assert left.stdout is not None
        assert left.stderr is not None
        left.stdout.close()
        assert (left.stderr.read(), left.wait(timeout=60)) == ("", 1)
