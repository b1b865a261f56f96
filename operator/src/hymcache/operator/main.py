"""`hymcache-operator`: settings from flags or environment, then one operator."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import click
from hymcache.operator import log
from hymcache.operator.clients.connect import ConnectError
from hymcache.operator.operator import Operator
from hymcache.operator.settings import Settings


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """One option per setting, with its default and its help."""
    for field in reversed(dataclasses.fields(Settings)):
        kind = type(field.default)
        option = click.option(
            f"--{field.name.replace('_', '-')}",
            field.name,
            type=kind,
            default=field.default,
            show_default=True,
            help=field.metadata["help"],
        )
        command = option(command)
    return command


@click.command(context_settings={"auto_envvar_prefix": "HYMCACHE_OPERATOR", "help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hymcache-operator")
@click.option("--kubeconfig", type=click.Path(exists=True), help="File; without it the pod's service account is used.")
@_options
@click.pass_obj
def main(after_write: Callable[[str], None] | None, /, kubeconfig: str | None, **values: Any) -> None:
    """Compose CXL memory regions for resource claims. Every option can be set as HYMCACHE_OPERATOR_<NAME>."""
    try:
        settings = Settings(**values)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    log.configure(settings.log_level, settings.log_format)
    try:
        sys.exit(asyncio.run(_run(settings, kubeconfig, after_write or (lambda _: None))))
    except ConnectError as error:
        raise click.ClickException(str(error)) from error


async def _run(settings: Settings, kubeconfig: str | None, after_write: Callable[[str], None]) -> int:
    return await Operator(settings, kubeconfig, after_write).run()
