"""What the operator and the plugins may do, and nothing else. The policies of `policies.py` narrow it further."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hymcache.crds.names import DRIVER, GROUP
from hymcache.crds.render import KINDS

READ = ["get", "list", "watch"]
RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Accounts:
    """The two service accounts, by name, in one namespace. Helm expressions are allowed."""

    namespace: str
    operator: str
    plugin: str

    def user(self, account: str) -> str:
        """User name of a service account of the namespace."""
        return f"system:serviceaccount:{self.namespace}:{account}"


def _rule(group: str, resources: list[str], verbs: list[str], names: list[str] | None = None) -> dict[str, Any]:
    rule: dict[str, Any] = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return {**rule, "resourceNames": names} if names else rule


def operator_rules() -> list[dict[str, Any]]:
    """Cluster-wide rules of the operator.

    `resourceclaims/driver` is the granular right (1.36+) to write `status.devices` of an allocation that several nodes
    may use; it is refused with 422, not 403, where it is missing. Older servers ignore it.
    """
    plurals = [kind.PLURAL for kind in KINDS]
    return [
        _rule("resource.k8s.io", ["resourceclaims"], READ),
        _rule("resource.k8s.io", ["resourceclaims/status"], ["patch"]),
        _rule("resource.k8s.io", ["resourceclaims/driver"], ["arbitrary-node:patch"], [DRIVER]),
        _rule("resource.k8s.io", ["resourceslices"], [*READ, "create", "patch", "delete"]),
        _rule("", ["nodes"], [*READ, "patch"]),
        _rule("", ["pods"], READ),
        _rule(GROUP, plurals, [*READ, "create", "patch", "delete"]),
        _rule(GROUP, [f"{plural}/status" for plural in plurals if plural != "cxlnodes"], ["patch"]),
        _rule("events.k8s.io", ["events"], ["create", "patch"]),
    ]


def operator_namespace_rules() -> list[dict[str, Any]]:
    """Rules of the operator in its own namespace: its Lease, and the fabrics' credentials by name."""
    return [
        _rule("coordination.k8s.io", ["leases"], ["get", "create", "update"]),
        _rule("", ["secrets"], ["get"]),
    ]


def plugin_rules() -> list[dict[str, Any]]:
    """Cluster-wide rules of the node plugins; the node-plugin policy narrows every write to the own node."""
    return [
        _rule("resource.k8s.io", ["resourceclaims"], ["get"]),
        _rule(GROUP, ["cxlnodes"], ["get", "create", "patch"]),
        _rule(GROUP, ["cxlnodes/status"], ["patch"]),
        _rule(GROUP, ["cxlregions"], READ),
        _rule(GROUP, ["cxlregions/status"], ["patch"]),
    ]


def _role(name: str, rules: list[dict[str, Any]], namespace: str | None = None) -> dict[str, Any]:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "rules": rules,
    }


def _binding(role: dict[str, Any], accounts: Accounts, account: str) -> dict[str, Any]:
    return {
        "apiVersion": role["apiVersion"],
        "kind": role["kind"] + "Binding",
        "metadata": role["metadata"],
        "roleRef": {"apiGroup": RBAC, "kind": role["kind"], "name": role["metadata"]["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": accounts.namespace}],
    }


def roles(accounts: Accounts) -> list[dict[str, Any]]:
    """Roles and bindings of both service accounts."""
    pairs = [
        (_role("hymcache-operator", operator_rules()), accounts.operator),
        (_role("hymcache-operator", operator_namespace_rules(), accounts.namespace), accounts.operator),
        (_role("hymcache-plugin", plugin_rules()), accounts.plugin),
    ]
    return [manifest for role, account in pairs for manifest in (role, _binding(role, accounts, account))]
