"""What is counted, and the log that it is counted by."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

REQUIREMENTS: dict[str, Requirement] = {
    "log:digest": Requirement(
        "contract, metadata",
        "Every event of an agent carries the digest of its compiled tree, which names the compile.",
    ),
    "log:unread": Requirement(
        "issue 6, item 4",
        "A log that nobody reads stops nothing: lines are kept up to a bound, dropped whole, counted.",
    ),
    "log:any-text": Requirement(
        "contract, the log",
        "A line of the log or of history is written whatever text is in it, and strict readers take it.",
    ),
    "log:lost": Requirement(
        "issue 6, item 4",
        "Lines that a full disk or a gone reader costs are counted; none is glued to one that was torn.",
    ),
    "log:contract": Requirement(
        "contract, the log", "Every line of the log is one of the published events, with their members and no others."
    ),
    "metrics:counts": Requirement("inspect, metrics", "What is counted is what happened, in numbers and in time."),
    "metrics:format": Requirement("inspect, metrics", "Prometheus' text, and OpenMetrics for who asks for it."),
    "metrics:secrets": Requirement("inspect, metrics", "No label holds a secret, or what a model or a runner wrote."),
    "metrics:apart": Requirement("inspect, metrics", "On a listener of its own, which serves nothing else."),
    "metrics:hostile": Requirement("issue 6, item 4", "Who misuses the listener hurts neither the proxy nor a scrape."),
    "metrics:reload": Requirement("issue 6, item 5", "A script that is reloaded loses no count."),
    "metrics:moved": Requirement(
        "issue 6, item 5", "The listener goes elsewhere, and off, while the proxy runs; what can't be changes nothing."
    ),
    "metrics:start": Requirement("issue 6, item 4", "A listener that can't be opened is one line, and no start."),
    "metrics:token": Requirement(
        "inspect, metrics", "Where runners reach the listener, it tells only who has its token."
    ),
    "metrics:off": Requirement("issue 6, item 4", "Nothing listens unless it is asked to."),
    "metrics:page": Requirement("issue 6, item 4", "docs/metrics.md has every metric, as the registry has it."),
    "tracing:turn": Requirement("inspect, metrics", "OpenTelemetry: one trace a turn, by the GenAI conventions."),
    "tracing:words": Requirement("inspect, metrics", "No trace tells words of a conversation, or a secret."),
    "tracing:gone": Requirement("issue 6, item 4", "A collector that is not there costs spans and nothing else."),
    "tracing:end": Requirement("issue 6, item 4", "What was traced is sent before the proxy has ended."),
    "tracing:off": Requirement("issue 6, item 4", "Traces are sent only where an endpoint is named."),
}
