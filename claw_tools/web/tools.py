"""The tools of the web. They keep no connection, so that there is nothing to close."""

from claw_tools.settings import SearchSettings, UrlPolicy
from claw_tools.tool import Tool
from claw_tools.web.fetch import WebFetch
from claw_tools.web.search import WebSearch


def web_tools(urls: UrlPolicy, search: SearchSettings | None) -> list[Tool]:
    """Return ``web_fetch``, and ``web_search`` where an endpoint is configured;
    principals may share them.

    Raise ``ValueError`` with one line for a setting that can't be used.
    """
    return [WebFetch(urls), *([] if search is None else [WebSearch(search)])]
