"""What the demo can be told; every field is `DEMO_<FIELD>` in the environment and an option of the command."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
LENGTH_MAX = 8000  # the model's context is 8192 tokens


class SettingsError(ValueError):
    """A setting that the demo cannot run with; the message says what is accepted."""


@dataclass(frozen=True)
class Settings:
    """One run.

    Attributes:
        tokens: prompt lengths. The defaults are a long text and a short question behind it: the part after the last
            whole chunk of 256 tokens is always computed.
        repeats: rounds; each has texts of its own, so that cold is cold. The table shows medians.
        output_tokens: tokens drawn after each prompt and compared.
        region_mib: size of the region; two hosts have half of it each.
        seed: chooses the texts.
        keep: do not remove the folder with logs at the end.
    """

    tokens: tuple[int, ...] = (1030, 2060, 4120)
    repeats: int = 3
    output_tokens: int = 16
    region_mib: int = 1024
    seed: int = 1
    keep: bool = False

    def __post_init__(self) -> None:
        if not self.tokens or any(not 300 <= length <= LENGTH_MAX for length in self.tokens):
            raise SettingsError(f"DEMO_TOKENS: expected lengths from 300 to {LENGTH_MAX}, found {self.tokens}")
        if self.repeats < 1 or self.output_tokens < 1:
            raise SettingsError("DEMO_REPEATS and DEMO_OUTPUT_TOKENS: expected at least 1")
        if self.region_mib < 128 or self.region_mib % 64:
            raise SettingsError(f"DEMO_REGION_MIB: expected a multiple of 64 from 128, found {self.region_mib}")


def lengths(text: str) -> tuple[int, ...]:
    """`1000,2000,4000` as numbers, shortest first.

    Raises:
        SettingsError: something else than numbers.
    """
    try:
        return tuple(sorted(int(part) for part in text.replace(",", " ").split()))
    except ValueError:
        raise SettingsError(f"DEMO_TOKENS: expected numbers with commas between, found {text!r}") from None
