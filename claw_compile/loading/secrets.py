"""Where the pod's ``secrets`` are: that each file is there, and never what is in it."""

from __future__ import annotations

from pathlib import Path

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import quoted
from claw_compile.grammar.pod import PodSpec
from claw_compile.loading.files import Files
from claw_compile.parsing.node import ScalarNode


def check_secret_files(pod: PodSpec, files: Files) -> None:
    """Report each that is not there. An absolute path may be another machine's: it is not looked at."""
    for secret in pod.secrets:
        if secret.source == "file" and not secret.of.text.startswith("/"):
            _check(secret.of, files)


def _check(path: ScalarNode, files: Files) -> None:
    target = files.target(path.text) if "\0" not in path.text else None
    if target is None:
        message = f"the secret {quoted(path.shown)} leads out of the pod's directory"
        files.found.append(codes.PATH_ESCAPES_POD.at(path.span, message))
    elif not _is_file(target):
        files.found.append(codes.UNREADABLE_FILE.at(path.span, f"the secret {quoted(path.shown)} is no file"))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # A name that is too long is no file.
        return False
