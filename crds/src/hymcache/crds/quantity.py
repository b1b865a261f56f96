"""Kubernetes quantities of bytes, to and from integers."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18, "": 1}
PATTERN = re.compile(r"^([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([KMGTPE]i|[kMGTPE]|m)|[eE]([+-]?[0-9]+))?$")


def parse_bytes(text: str) -> int:
    """Bytes of a quantity such as `64Gi`, `1e9` or `1500M`, rounded up to a whole byte.

    Raises:
        ValueError: `text` is not a quantity of zero or more.
    """
    match = PATTERN.match(text)
    if not match:
        raise ValueError(f"quantity {text!r}: expected a number with an optional suffix such as Gi or M")
    number, suffix, exponent = Decimal(match[1]), match[2] or "", match[3]
    if exponent is not None:
        value = number.scaleb(int(exponent))
    elif suffix == "m":
        value = number / 1000
    else:
        value = number * (BINARY.get(suffix) or DECIMAL[suffix])
    return int(value.to_integral_value(ROUND_CEILING))


def format_bytes(count: int) -> str:
    """`count` bytes as the shortest exact binary quantity: 68719476736 is `64Gi`, 1610612736 is `1536Mi`."""
    for suffix, unit in reversed(BINARY.items()):
        if count >= unit and count % unit == 0:
            return f"{count // unit}{suffix}"
    return str(count)
