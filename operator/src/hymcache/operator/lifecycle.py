"""`hymcache-lifecycle`: what happens around a release of the chart, run by its hooks.

`apply-crds` brings our kinds up to date before an upgrade, since Helm only ever installs them. `check` refuses an
uninstall while anything is in use. `retire` removes the release's own CXLFabric while the operator is there to let go
of it: Helm would wait for it when the operator is gone. `clean` removes what the operator made once it is gone: node
labels, slices, the Lease, and the kinds themselves.

A forced uninstall leaves regions behind. Then `clean` keeps the kinds and the slices: pods run on, and an installation
that comes later finds its regions and frees what was deleted meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

import click
from hymcache.crds.names import DRIVER, FINALIZER_FABRIC, GROUP
from hymcache.crds.render import KINDS, crd
from hymcache.operator.clients import connect
from hymcache.operator.clients.api import Api, ApiError
from hymcache.operator.clients.kinds import CLAIM, FABRIC, LEASE, NODE, REGION, SLICE, Kind, Object

CRD = Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
REQUEST_SECONDS = 15.0
RELEASE_SECONDS = 60.0
"""How long `check` waits for regions that are being released already: their claims are gone, nobody holds them."""
REMOVAL_SECONDS = 30.0
REMIND_SECONDS = 5.0
"""How often a kind that is still there is changed, for the API server to look at it again."""
POLL_SECONDS = 1.0


class RefusedError(Exception):
    """The release may not be removed now; the message says what holds it."""


async def _list(api: Api, kind: Kind) -> list[Object]:
    """All objects of a kind; none when the server does not know the kind."""
    try:
        return (await api.list_all(kind))[0]
    except ApiError as error:
        if error.status == 404:
            return []
        raise


def _label(body: Object) -> str:
    meta = body["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])


def describe_claim(body: Object) -> str | None:
    """One sentence on a claim that holds memory of ours, or None."""
    status = body.get("status", {})
    results = status.get("allocation", {}).get("devices", {}).get("results", [])
    if not any(result["driver"] == DRIVER for result in results):
        return None
    users = ", ".join(sorted(user["name"] for user in status.get("reservedFor", [])))
    return f"claim {_label(body)} is allocated, used by {users or 'no pod'}"


def describe_region(body: Object) -> str:
    """One sentence on a region."""
    claim = body.get("spec", {}).get("claimRef")
    owner = f"of claim {claim['namespace']}/{claim['name']}" if claim else "of no claim"
    return f"region {_label(body)} {owner} is {body.get('status', {}).get('phase', 'Pending')}"


def is_going(body: Object) -> bool:
    """Whether a region is on its way out."""
    return "deletionTimestamp" in body["metadata"] or body.get("status", {}).get("phase") == "Releasing"


async def check(api: Api, *, release_seconds: float = RELEASE_SECONDS) -> None:
    """Return when nothing is in use.

    Raises:
        RefusedError: claims are allocated or regions exist; each is named.
    """
    deadline = time.monotonic() + release_seconds
    while True:
        claims = [text for body in await _list(api, CLAIM) if (text := describe_claim(body))]
        regions = await _list(api, REGION)
        if not claims and not regions:
            return
        if claims or not all(map(is_going, regions)) or time.monotonic() > deadline:
            break
        await asyncio.sleep(POLL_SECONDS)
    found = [*claims, *map(describe_region, regions)]
    raise RefusedError(
        "HyMCache is in use and was not uninstalled:\n  "
        + "\n  ".join(found)
        + "\nDelete the pods and the claims, and the CXLRegions that belong to no claim; their data is lost then. "
        "Or force it with `helm uninstall --no-hooks`: pods run on, deleted ones hang until HyMCache is back."
    )


async def retire(api: Api, *, seconds: float = RELEASE_SECONDS) -> None:
    """Delete the CXLFabrics that Helm made and wait until they are gone; with regions left they stay, as does all else.

    Raises:
        RefusedError: the operator did not let go of one in time.
    """
    if await _list(api, REGION):
        return
    deadline = time.monotonic() + seconds
    while ours := [body for body in await _list(api, FABRIC) if _is_helms(body)]:
        if time.monotonic() > deadline:
            names = ", ".join(map(_label, ours))
            raise RefusedError(
                f"fabric {names} was deleted and is still there {seconds:g} s later; see the operator's log"
            )
        for body in ours:
            if "deletionTimestamp" not in body["metadata"]:
                await api.delete(FABRIC, body)
        await asyncio.sleep(POLL_SECONDS)


def _is_helms(body: Object) -> bool:
    return bool(body["metadata"].get("labels", {}).get("app.kubernetes.io/managed-by") == "Helm")


async def apply_crds(api: Api) -> None:
    """Apply our kinds as this version has them."""
    for kind in KINDS:
        body = crd(kind)
        await api.apply(CRD, body, await api.get(CRD, body["metadata"]["name"]))


async def clean(api: Api, namespace: str, lease: str, *, crds: bool) -> list[str]:
    """Remove what the operator made; sentences on what was left, if anything."""
    for node in await _list(api, NODE):
        labels = [key for key in node["metadata"].get("labels", {}) if key.startswith(f"{GROUP}/")]
        if labels:
            await api.merge(NODE, node, {"metadata": {"labels": dict.fromkeys(labels)}})
    if body := await api.get(LEASE, lease, namespace):
        await api.delete(LEASE, body)
    if regions := await _list(api, REGION):
        return [f"{describe_region(body)} and was left" for body in regions]
    for body in await _list(api, SLICE):
        if body["spec"]["driver"] == DRIVER:
            await api.delete(SLICE, body)
    if crds:
        await _remove_kinds(api)
    return []


async def _remove_kinds(api: Api) -> None:
    """Delete our kinds and with them their objects; no region is among those, so no finalizer has work left to do."""
    for fabric in await _list(api, FABRIC):
        if FINALIZER_FABRIC in fabric["metadata"].get("finalizers", []):
            await api.merge(FABRIC, fabric, {"metadata": {"finalizers": None}})
    ours = {crd(kind)["metadata"]["name"] for kind in KINDS}
    for name in ours:
        if body := await api.get(CRD, name):
            await api.delete(CRD, body)
    started = reminded = time.monotonic()
    while left := [body for body in await _list(api, CRD) if body["metadata"]["name"] in ours]:
        now = time.monotonic()
        if now > started + REMOVAL_SECONDS:
            names = ", ".join(sorted(map(_label, left)))
            raise RefusedError(f"kinds {names} are deleted but still there after {REMOVAL_SECONDS:g} s")
        if now > reminded + REMIND_SECONDS:
            reminded = now
            await _remind(api, left)
        await asyncio.sleep(POLL_SECONDS)


async def _remind(api: Api, kinds: list[Object]) -> None:
    """Change deleted kinds, so that the API server tries to remove them again.

    It retries by itself when its storage was not ready, but when the retry meets its own last write it waits for a
    change, and its own writes do not count as one (Kubernetes 1.37, crd_finalizer.go); the next look is minutes away.
    """
    for body in kinds:
        try:
            await api.merge(CRD, body, {"metadata": {"annotations": {f"{GROUP}/removal": f"{time.time():.3f}"}}})
        except ApiError as error:
            if error.status not in {404, 409}:
                raise


def _run(kubeconfig: str | None, work: Callable[[Api], Any]) -> None:
    async def connected() -> Any:
        transport = connect.KubernetesTransport(await connect.configuration(kubeconfig), REQUEST_SECONDS)
        api = Api(transport)
        try:
            return await work(api)
        finally:
            await api.close()

    try:
        for line in asyncio.run(connected()) or []:
            click.echo(line)
    except (RefusedError, ApiError, connect.ConnectError) as error:
        click.echo(str(error), err=True)
        sys.exit(1)


@click.group(context_settings={"auto_envvar_prefix": "HYMCACHE_LIFECYCLE", "help_option_names": ["-h", "--help"]})
@click.option("--kubeconfig", type=click.Path(exists=True), help="File; without it the pod's service account is used.")
@click.pass_context
def main(context: click.Context, kubeconfig: str | None) -> None:
    """Hooks around a release of the chart."""
    context.obj = kubeconfig


@main.command("check")
@click.option("--release-seconds", default=RELEASE_SECONDS, show_default=True, help="Wait so long for regions that go.")
@click.pass_obj
def check_command(kubeconfig: str | None, release_seconds: float) -> None:
    """Refuse while claims are allocated or regions exist."""
    _run(kubeconfig, lambda api: check(api, release_seconds=release_seconds))


@main.command("retire")
@click.option("--seconds", default=RELEASE_SECONDS, show_default=True, help="Wait so long for the operator.")
@click.pass_obj
def retire_command(kubeconfig: str | None, seconds: float) -> None:
    """Remove the release's own CXLFabric while the operator is there."""
    _run(kubeconfig, lambda api: retire(api, seconds=seconds))


@main.command("apply-crds")
@click.pass_obj
def apply_crds_command(kubeconfig: str | None) -> None:
    """Bring the kinds up to date."""
    _run(kubeconfig, apply_crds)


@main.command("clean")
@click.option("--namespace", default="hymcache", show_default=True, envvar="HYMCACHE_LIFECYCLE_NAMESPACE")
@click.option("--lease", default="hymcache-operator", show_default=True, help="Name of the operator's Lease.")
@click.option("--crds", is_flag=True, help="Remove the kinds as well.")
@click.pass_obj
def clean_command(kubeconfig: str | None, namespace: str, lease: str, crds: bool) -> None:
    """Remove what the operator made."""
    _run(kubeconfig, lambda api: clean(api, namespace, lease, crds=crds))
