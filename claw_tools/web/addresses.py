"""Which addresses may be connected to (docs/spec/tools-host.md "web_fetch").

Rules. An address must be global, and no form of IPv6 that holds an address of IPv4. A host that the
operator names may also be private or loopback. Addresses of metadata services, and all that are
link-local, are closed to everybody.
"""

from claw_contract.addresses import Address, classify_address


def find_refusal(address: Address, *, allow_private: bool) -> str | None:
    """Return why nobody may connect to this address, as half a sentence; None if it is open."""
    match classify_address(address):
        case "metadata":
            return "is link-local or a metadata service, which no setting opens"
        case "private":
            return (
                None
                if allow_private
                else "is private: an operator can open it with url_policy.allow_private"
            )
        case "special":
            return "is of a special kind, which is not fetched from"
        case "global":
            return None
