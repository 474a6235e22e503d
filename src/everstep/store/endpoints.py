"""Which hosts a store may be on: never one that hands out a machine's own credentials."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from everstep.errors import UnsuitableStore, UsageError

__all__ = ["Endpoint", "check_endpoint"]

_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})
_METADATA_ADDRESSES = frozenset(
    {"fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "168.63.129.16", "100.100.100.200"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An address that was checked. ``host`` is without brackets and port."""

    url: str
    host: str
    encrypted: bool
    loopback: bool


def check_endpoint(url: str, source: str) -> Endpoint:
    """The endpoint a user set in ``source``, if requests may go there.

    Raises `UnsuitableStore` naming the host for addresses that are link-local or serve instance metadata,
    `UsageError` for what is not http or https, or holds a user's name.
    """
    hint = f"correct {source}"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise UsageError(f"{source} is not an address", hint=hint) from None
    if parts.scheme not in {"http", "https"} or not host:
        raise UsageError(f"{source} begins with {parts.scheme}://, and stores speak http or https", hint=hint)
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError(
            f"{source} for host {host} holds more than host, port and path", hint=hint, host=host
        )
    address = _address(host)
    if host.rstrip(".").lower() in _METADATA_NAMES or (address is not None and _is_metadata(address)):
        raise UnsuitableStore(
            f"{source} points to {host}, an address for this machine's own metadata",
            hint="a store is never there; " + hint,
            host=host,
        )
    return Endpoint(
        url=url.rstrip("/"),
        host=host,
        encrypted=parts.scheme == "https",
        loopback=host == "localhost" or (address is not None and address.is_loopback),
    )


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The numeric address that ``host`` is, in any of the forms a resolver takes: 0xa9fea9fe, 169.16689662."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, UnicodeError):
            return None
    if isinstance(found, ipaddress.IPv6Address):
        return found.ipv4_mapped or found
    return found


def _is_metadata(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return address.is_link_local or address.is_unspecified or str(address) in _METADATA_ADDRESSES
