"""Quantities."""

from __future__ import annotations

import pytest
from hymcache.crds.quantity import format_bytes, parse_bytes
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64Gi", 64 << 30),
        ("1536Mi", 3 << 29),
        ("1.5Gi", 3 << 29),
        ("1e3", 1000),
        ("12E", 12 * 10**18),
        ("5", 5),
        ("100m", 1),
        ("0", 0),
        ("2k", 2000),
    ],
)
def test_quantities_are_read_as_the_api_server_does(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "Gi", "-1", "4 Gi", "4GiB", "four", "1K"])
def test_what_is_no_quantity_is_refused_by_value(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number"):
        parse_bytes(text)


@given(st.integers(0, 2**63 - 1))
def test_formatting_is_exact(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == count


@pytest.mark.parametrize(
    ("count", "expected"), [(64 << 30, "64Gi"), (3 << 29, "1536Mi"), (1023, "1023"), (0, "0"), (1 << 40, "1Ti")]
)
def test_formatting_takes_the_largest_unit_that_divides(count: int, expected: str) -> None:
    assert format_bytes(count) == expected
