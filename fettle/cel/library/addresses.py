"""IP addresses and networks.

Runs in the worker. Only canonical families: no zones, and no IPv4 address in IPv6's clothes.
"""

import ipaddress
import re

from fettle.cel.library.signatures import (
    BOOL,
    CIDR,
    INT,
    IP,
    STRING,
    Apply,
    Functions,
    function,
    method,
)
from fettle.cel.library.values import Address, CelError, Frame, Network

_BITS = re.compile("0|[1-9][0-9]{0,2}")
Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


def _parsed(text: str) -> Ip:
    try:
        if not text.isascii() or "%" in text:
            raise ValueError("zone or other alphabet")
        ip = ipaddress.ip_address(text)
    except ValueError as error:
        raise CelError(f"{text[:60]!r} is not an IP address") from error
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        raise CelError(f"IPv4-mapped IPv6 address {text!r} is not allowed")
    return ip


def _address(frame: Frame, text: str) -> Address:
    frame.read(text)
    return Address(_parsed(text))


def _network(frame: Frame, text: str) -> Network:
    frame.read(text)
    before, slash, bits = text.rpartition("/")
    if not slash or _BITS.fullmatch(bits) is None:
        raise CelError(f"{text[:60]!r} is not a CIDR")
    ip = _parsed(before)
    if int(bits) > ip.max_prefixlen:
        raise CelError(f"{text[:60]!r} is not a CIDR")
    return Network(ip, int(bits))


def _whether(parse: Apply) -> Apply:
    def apply(frame: Frame, text: str) -> bool:
        try:
            parse(frame, text)
        except CelError:
            return False
        return True

    return apply


def _is_canonical(frame: Frame, text: str) -> bool:
    frame.read(text)
    return str(_parsed(text)) == text


def _is_link_local_multicast(ip: Ip) -> bool:
    if ip.version == 4:
        return ip.packed[:3] == b"\xe0\x00\x00"
    return ip.packed[0] == 0xFF and ip.packed[1] & 0x0F == 0x02


def _is_global_unicast(ip: Ip) -> bool:
    broadcast = ip.version == 4 and ip.packed == b"\xff\xff\xff\xff"
    special = ip.is_unspecified or ip.is_loopback or ip.is_multicast or ip.is_link_local
    return not broadcast and not special


def _asked(test: Apply) -> Apply:
    return lambda _frame, address: test(address.ip)


def _shifted(ip: Ip, bits: int) -> int:
    return int(ip) >> (ip.max_prefixlen - bits)


def _holds(_frame: Frame, network: Network, address: Address) -> bool:
    ip = address.ip
    return ip.version == network.address.version and _shifted(ip, network.bits) == _shifted(
        network.address, network.bits
    )


def _holds_text(frame: Frame, network: Network, text: str) -> bool:
    return _holds(frame, network, _address(frame, text))


def _covers(frame: Frame, network: Network, other: Network) -> bool:
    return network.bits <= other.bits and _holds(frame, network, Address(other.address))


def _covers_text(frame: Frame, network: Network, text: str) -> bool:
    return _covers(frame, network, _network(frame, text))


def _masked(_frame: Frame, network: Network) -> Network:
    rest = network.address.max_prefixlen - network.bits
    return Network(type(network.address)(int(network.address) >> rest << rest), network.bits)


def address_text(_frame: Frame, address: Address) -> str:
    return str(address.ip)


def network_text(_frame: Frame, network: Network) -> str:
    return f"{network.address}/{network.bits}"


_TESTS: dict[str, Apply] = {
    "isUnspecified": lambda ip: ip.is_unspecified,
    "isLoopback": lambda ip: ip.is_loopback,
    "isLinkLocalMulticast": _is_link_local_multicast,
    "isLinkLocalUnicast": lambda ip: ip.is_link_local,
    "isGlobalUnicast": _is_global_unicast,
}

FUNCTIONS: Functions = {
    "ip": (
        function((STRING,), IP, _address),
        method((CIDR,), IP, lambda _frame, network: Address(network.address)),
    ),
    "isIP": (function((STRING,), BOOL, _whether(_address)),),
    "ip.isCanonical": (function((STRING,), BOOL, _is_canonical),),
    "family": (method((IP,), INT, lambda _frame, address: address.ip.version),),
    **{name: (method((IP,), BOOL, _asked(test)),) for name, test in _TESTS.items()},
    "cidr": (function((STRING,), CIDR, _network),),
    "isCIDR": (function((STRING,), BOOL, _whether(_network)),),
    "containsIP": (
        method((CIDR, STRING), BOOL, _holds_text),
        method((CIDR, IP), BOOL, _holds),
    ),
    "containsCIDR": (
        method((CIDR, STRING), BOOL, _covers_text),
        method((CIDR, CIDR), BOOL, _covers),
    ),
    "prefixLength": (method((CIDR,), INT, lambda _frame, network: network.bits),),
    "masked": (method((CIDR,), CIDR, _masked),),
    "string": (
        function((IP,), STRING, address_text),
        function((CIDR,), STRING, network_text),
    ),
}
