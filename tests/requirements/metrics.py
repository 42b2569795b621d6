"""Metrics, and the log from which they are counted."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "log:digest": Requirement(
        "docs/spec/contract.md, metadata",
        "Every event of an agent carries the digest of its compiled tree, which names the compile.",
    ),
    "log:unread": Requirement(
        "docs/spec/contract.md, The log",
        "A log that nobody reads stops nothing: lines are kept up to a bound, dropped whole, counted.",
    ),
    "log:any-text": Requirement(
        "docs/spec/contract.md, the log",
        "A line of the log or of history is written whatever text is in it, and strict readers take it.",
    ),
    "log:lost": Requirement(
        "docs/spec/contract.md, The log",
        "Lines that a full disk or a gone reader costs are counted; none is glued to one that was torn.",
    ),
    "log:contract": Requirement(
        "docs/spec/contract.md, the log",
        "Every line of the log is one of the published events, with their members and no others.",
    ),
    "metrics:counts": Requirement(
        "docs/spec/inspect.md, metrics", "What is counted is what happened, in numbers and in time."
    ),
    "metrics:format": Requirement(
        "docs/spec/inspect.md, metrics", "Prometheus' text, and OpenMetrics for who asks for it."
    ),
    "metrics:secrets": Requirement(
        "docs/spec/inspect.md, metrics",
        "No label holds a secret, or what a model or a runner wrote.",
    ),
    "metrics:apart": Requirement(
        "docs/spec/inspect.md, metrics", "On a listener of its own, which serves nothing else."
    ),
    "metrics:hostile": Requirement(
        "docs/metrics.md", "Who misuses the listener hurts neither the proxy nor a scrape."
    ),
    "metrics:reload": Requirement("docs/metrics.md", "A script that is reloaded loses no count."),
    "metrics:moved": Requirement(
        "docs/metrics.md",
        "The listener goes elsewhere, and off, while the proxy runs; what can't be changes nothing.",
    ),
    "metrics:start": Requirement(
        "docs/metrics.md", "A listener that can't be opened is one line, and no start."
    ),
    "metrics:token": Requirement(
        "docs/spec/inspect.md, metrics",
        "Where runners reach the listener, it tells only who has its token.",
    ),
    "metrics:off": Requirement("docs/metrics.md", "Nothing listens unless it is asked to."),
    "metrics:page": Requirement(
        "docs/metrics.md", "docs/metrics.md has every metric, as the registry has it."
    ),
    "tracing:turn": Requirement(
        "docs/spec/inspect.md, metrics",
        "OpenTelemetry: one trace a turn, by the GenAI conventions.",
    ),
    "tracing:words": Requirement(
        "docs/spec/inspect.md, metrics", "No trace tells words of a conversation, or a secret."
    ),
    "tracing:gone": Requirement(
        "docs/metrics.md", "A collector that is not there costs spans and nothing else."
    ),
    "tracing:end": Requirement(
        "docs/metrics.md", "What was traced is sent before the proxy has ended."
    ),
    "tracing:off": Requirement(
        "docs/metrics.md", "Traces are sent only where an endpoint is named."
    ),
}
