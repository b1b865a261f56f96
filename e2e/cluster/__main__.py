"""Verbs of the test cluster.

python -m cluster up         a cluster with HyMCache installed; what an earlier run left is removed first
python -m cluster down       remove it, and nothing else
python -m cluster bare       the cluster alone
python -m cluster images     build everything that `up` needs, start nothing
python -m cluster env        settings for a shell: eval "$(make cluster-env)"
python -m cluster clean      down, and forget the container storage
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from cluster import containers, engines, images, install, kind, preflight
from cluster.command import CommandError
from cluster.settings import CLUSTER, KUBECONFIG, NAMESPACE

NEXT = f"""
The cluster {CLUSTER} is up, with HyMCache in namespace {NAMESPACE}. Next:

  eval "$(make cluster-env)"            kubectl, helm and kind for this shell
  kubectl get cxlblades,cxlnodes        what can be claimed, and where
  kubectl apply -f examples/01-shared-kv
  make cluster-down                     remove the cluster again
"""


def up() -> None:
    """A cluster with HyMCache; removed again when it does not come up."""
    bare()
    try:
        kind.give_every_container(engines.IN_EVERY_CONTAINER, engines.VARIABLES)
        install.install()
    except BaseException:
        if not os.environ.get("E2E_KEEP"):
            kind.down()
        raise
    sys.stdout.write(NEXT)


def bare() -> None:
    """The cluster alone."""
    preflight.check()
    mounts = engines.mounts()
    try:
        kind.up(mounts)
    except BaseException:
        if not os.environ.get("E2E_KEEP"):
            kind.down()
        raise


def build() -> None:
    """Build what `up` needs."""
    preflight.check()
    engines.mounts()
    kind.node_image()
    images.archive()
    if not containers.containers():
        containers.give_back()


def env() -> None:
    """Lines for a shell."""
    for name, value in {**containers.environment(), "KUBECONFIG": str(KUBECONFIG)}.items():
        sys.stdout.write(f"export {name}={value}\n")
    folders = ":".join(str(kind.program(name).parent) for name in ("kind", "kubectl", "helm"))
    sys.stdout.write(f'export PATH="{folders}:$PATH"\n')


def clean() -> None:
    """Remove the cluster and the container storage."""
    kind.down()
    containers.clean()


VERBS: dict[str, Callable[[], None]] = {
    "up": up,
    "down": kind.down,
    "bare": bare,
    "images": build,
    "env": env,
    "clean": clean,
}


def main() -> int:
    """Run one verb; exit status 1 and one message when it fails."""
    if len(sys.argv) != 2 or sys.argv[1] not in VERBS:
        sys.stderr.write(__doc__ or "")
        return 2
    try:
        VERBS[sys.argv[1]]()
    except CommandError as error:
        sys.stderr.write(f"cluster: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
