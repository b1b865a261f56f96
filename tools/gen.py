#!/usr/bin/env python3
"""Write every file that is generated from the models, or (`--check`) say which ones are stale.

CRDs, access rules and classes go into the chart, reference pages into docs. Names of accounts stay Helm expressions.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import chart_schema
import yaml
from hymcache.crds.classes import device_classes
from hymcache.crds.policies import policies
from hymcache.crds.rbac import Accounts, roles
from hymcache.crds.reference import page
from hymcache.crds.render import KINDS, crd
from hymcache.operator.reference import page as operator_page

ROOT = Path(__file__).resolve().parent.parent
CHART = Path("charts/hymcache")
HEADER = "# Generated from crds/ by `make gen`; do not edit.\n"
HELM = Accounts(
    namespace="{{ .Release.Namespace }}",
    operator='{{ include "hymcache.operator.account" . }}',
    plugin='{{ include "hymcache.plugin.account" . }}',
)
"""Helm puts the names in when the chart is rendered."""


class _Dumper(yaml.SafeDumper):
    """Block style, no anchors, long strings unfolded: a diff shows what changed."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def manifest(*documents: dict[str, Any]) -> str:
    """YAML documents under the generated-file header."""
    return HEADER + yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=2**20, explicit_start=True)


def files() -> dict[Path, str]:
    """Every generated file, relative to the root, with its text."""
    generated = {CHART / "crds" / f"{kind.PLURAL}.yaml": manifest(crd(kind)) for kind in KINDS}
    generated[CHART / "templates" / "deviceclasses.yaml"] = manifest(*device_classes())
    generated[CHART / "templates" / "rbac.yaml"] = manifest(*roles(HELM))
    generated[CHART / "templates" / "policies.yaml"] = manifest(*policies(HELM))
    generated[CHART / "values.schema.json"] = chart_schema.rendered()
    generated[Path("docs/reference/crds.md")] = page()
    generated[Path("docs/reference/operator.md")] = operator_page()
    return generated


def main() -> int:
    """Write or check; exit status 1 when `--check` finds a stale file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, name stale files")
    check = parser.parse_args().check
    stale = [
        (path, text)
        for path, text in files().items()
        if not (ROOT / path).is_file() or (ROOT / path).read_text() != text
    ]
    for path, text in stale:
        if check:
            print(f"{path} is stale: run `make gen` and commit the result")
            continue
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)
        print(f"wrote {path}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
