"""Multipart forms, as a runner's library writes them."""

from __future__ import annotations

CONTENT_TYPE = "multipart/form-data; boundary=edge"


def form(*parts: tuple[str, bytes]) -> bytes:
    """Return the body of a form; a field called ``file`` is a file."""
    body = b""
    for name, value in parts:
        file = b'; filename="a.wav"\r\nContent-Type: audio/wav' if name == "file" else b""
        body += b'--edge\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % (
            name.encode(),
            file,
            value,
        )
    return body + b"--edge--\r\n"
