"""A clock over HTTP: ``GET /time?zone=Asia/Tokyo``."""

from __future__ import annotations

import json
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo


def answer(target: str) -> tuple[int, dict[str, str]]:
    """Return the status and the JSON for the target of a request."""
    url = urlsplit(target)
    if url.path != "/time":
        return 404, {"error": "there is only /time"}
    zone = parse_qs(url.query).get("zone", ["UTC"])[0]
    try:
        now = datetime.now(ZoneInfo(zone))
    except (LookupError, ValueError, OSError):
        return 404, {"error": "no such zone; it is called like Europe/Berlin"}
    return 200, {"zone": zone, "time": now.isoformat(timespec="seconds")}


class Clock(BaseHTTPRequestHandler):
    """One request: a status and a JSON object."""

    def do_GET(self) -> None:
        status, body = answer(self.path)
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    ThreadingHTTPServer(("", 8000), Clock).serve_forever()
