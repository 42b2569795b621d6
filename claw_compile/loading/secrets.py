"""Where the pod's ``secrets`` are: that each is there, and never what it is."""

from __future__ import annotations

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import quoted
from claw_compile.grammar.pod import PodSpec
from claw_compile.grammar.relations import PodSecret
from claw_compile.loading.files import Files
from claw_compile.reading.interpolation import Lookup


def check_secrets(pod: PodSpec, files: Files, lookup: Lookup) -> None:
    """Report each that is not there. An absolute path is another machine's matter: it is not looked at."""
    for secret in pod.secrets:
        if secret.source == "file":
            _file(secret, files)
        elif not lookup(secret.of.text):
            message = f"the secret {quoted(secret.name.shown)} is not there: {secret.of.shown} is not set, or empty"
            files.found.append(codes.SECRET_MISSING.at(secret.of.span, message))


def _file(secret: PodSecret, files: Files) -> None:
    path = secret.of
    if path.text.startswith("/"):
        return
    target = files.target(path.text) if "\0" not in path.text else None
    if target is None:
        message = f"the secret {quoted(path.shown)} leads out of the pod's directory"
        files.found.append(codes.PATH_ESCAPES_POD.at(path.span, message))
    elif not target.is_file():
        message = f"the secret {quoted(secret.name.shown)} is not there: {quoted(path.shown)} is no file"
        files.found.append(codes.SECRET_MISSING.at(path.span, message))
