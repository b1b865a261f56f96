"""Four ValidatingAdmissionPolicies: one writer per thing, and claims that the driver can serve.

RBAC cannot say "your own entry of a list" or "labels of this prefix"; these can. All fail closed.
"""

from __future__ import annotations

from typing import Any

from hymcache.crds.names import CLASS_PREFIX, DRIVER, GROUP
from hymcache.crds.rbac import Accounts

API = "admissionregistration.k8s.io/v1"


def _policy(
    name: str,
    match: dict[str, Any],
    *,
    conditions: dict[str, str],
    variables: dict[str, str],
    validations: list[tuple[str, str]],
) -> list[dict[str, Any]]:
    """A policy and its binding. A validation is (expression, message as a CEL expression of type string)."""
    policy = {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [match]},
            "matchConditions": [{"name": n, "expression": e} for n, e in conditions.items()],
            "variables": [{"name": n, "expression": e} for n, e in variables.items()],
            "validations": [{"expression": e, "messageExpression": m} for e, m in validations],
        },
    }
    binding = {
        "apiVersion": API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return [policy, binding]


def _match(group: str, resources: list[str], operations: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": resources}


def node_plugin(accounts: Accounts) -> list[dict[str, Any]]:
    """A plugin changes its own entry of a region's `status.hosts` and the status of its own CXLNode, nothing else.

    The node is the one that the pod's bound token names, so a stolen token is worth one node.
    """
    node = "variables.node"
    own_only = (
        "!variables.regionStatus || (variables.oldOthers.size() == variables.newOthers.size() && "
        "variables.oldOthers.all(o, variables.newOthers.exists(n, n == o)))"
    )
    rest_same = (
        "!variables.regionStatus || ("
        'variables.new.all(k, k == "hosts" || (k in variables.old && variables.old[k] == variables.new[k])) && '
        'variables.old.all(k, k == "hosts" || k in variables.new))'
    )
    return _policy(
        "hymcache-node-plugin",
        _match(GROUP, ["*/*"], ["CREATE", "UPDATE", "DELETE"]),
        conditions={"isNodePlugin": f'request.userInfo.username == "{accounts.user(accounts.plugin)}"'},
        variables={
            "node": "request.userInfo.extra[?'authentication.kubernetes.io/node-name'][0].orValue('')",
            "isNode": 'request.resource.resource == "cxlnodes" && request.operation != "DELETE"',
            "regionStatus": 'request.resource.resource == "cxlregions" && request.subResource == "status" && '
            'request.operation == "UPDATE"',
            "old": "oldObject == null ? {} : oldObject.?status.orValue({})",
            "new": "object == null ? {} : object.?status.orValue({})",
            "oldOthers": f"variables.old.?hosts.orValue([]).filter(h, h.node != {node})",
            "newOthers": f"variables.new.?hosts.orValue([]).filter(h, h.node != {node})",
            "oldSpec": "oldObject == null ? {} : oldObject.?spec.orValue({})",
            "newSpec": "object == null ? {} : object.?spec.orValue({})",
        },
        validations=[
            (f'{node} != ""', '"the token names no node: use the projected token of a plugin pod"'),
            (
                "variables.regionStatus || variables.isNode",
                '"a node plugin writes only cxlregions/status and its own cxlnodes, not " + request.operation + " " + '
                'request.resource.resource + "/" + request.subResource',
            ),
            (
                f"!variables.isNode || request.name == {node}",
                f'"node " + {node} + " may write only the CXLNode of its own name, not " + request.name',
            ),
            (
                "!variables.isNode || variables.oldSpec == variables.newSpec",
                f'"node " + {node} + " may write only the status of its CXLNode; the operator writes the spec"',
            ),
            (own_only, f'"node " + {node} + " may change only its own entry of status.hosts"'),
            (rest_same, f'"node " + {node} + " may change nothing in the status but its own entry of hosts"'),
        ],
    )


def slices(accounts: Accounts) -> list[dict[str, Any]]:
    """Slices of the driver are the operator's: a second slice in a pool stops all its claims, silently."""
    return _policy(
        "hymcache-slices",
        _match("resource.k8s.io", ["resourceslices"], ["CREATE", "UPDATE"]),
        conditions={
            "ourDriver": f'object.spec.driver == "{DRIVER}"',
            "notOperator": f'request.userInfo.username != "{accounts.user(accounts.operator)}"',
        },
        variables={},
        validations=[
            (
                "false",
                f'"slices of driver {DRIVER} are written by the HyMCache operator only, not by " + '
                "request.userInfo.username",
            )
        ],
    )


def node_labels(accounts: Accounts) -> list[dict[str, Any]]:
    """The operator labels nodes; its right to patch them ends at labels of the group."""
    ours = f'k.startsWith("{GROUP}/")'
    return _policy(
        "hymcache-node-labels",
        _match("", ["nodes", "nodes/status"], ["UPDATE"]),
        conditions={"isOperator": f'request.userInfo.username == "{accounts.user(accounts.operator)}"'},
        variables={
            "before": "oldObject.metadata.?labels.orValue({})",
            "after": "object.metadata.?labels.orValue({})",
        },
        validations=[
            (
                f"variables.after.all(k, {ours} || (k in variables.before && "
                "variables.before[k] == variables.after[k])) && "
                f"variables.before.all(k, {ours} || k in variables.after) && "
                "object.spec == oldObject.spec && object.?status == oldObject.?status && "
                "object.metadata.?annotations == oldObject.metadata.?annotations && "
                "object.metadata.?finalizers == oldObject.metadata.?finalizers && "
                "object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences",
                f'"the HyMCache operator may change only node labels that begin with {GROUP}/"',
            )
        ],
    )


def claims() -> list[dict[str, Any]]:
    """Claims and templates of our classes: one request, one device. Binding conditions are kept per claim and pool."""
    mine = f'deviceClassName.startsWith("{CLASS_PREFIX}")'
    return _policy(
        "hymcache-claims",
        _match("resource.k8s.io", ["resourceclaims", "resourceclaimtemplates"], ["CREATE"]),
        conditions={},
        variables={
            "requests": 'request.resource.resource == "resourceclaims" ? object.spec.?devices.?requests.orValue([]) : '
            "object.spec.spec.?devices.?requests.orValue([])",
            "ours": "variables.requests.filter(r, r.?exactly.?deviceClassName.orValue('')"
            f'.startsWith("{CLASS_PREFIX}") || r.?firstAvailable.orValue([]).exists(f, f.{mine}))',
            "leaves": "variables.ours.map(r, has(r.exactly) ? [r.exactly] : "
            f"r.firstAvailable.filter(f, f.{mine})).flatten()",
        },
        validations=[
            (
                "variables.ours.size() <= 1",
                '"spec.devices.requests: a claim holds one request of a hymcache class; make one claim per region"',
            ),
            (
                'variables.leaves.all(l, l.?allocationMode.orValue("ExactCount") == "ExactCount" && '
                "l.?count.orValue(1) == 1)",
                '"spec.devices.requests: hymcache classes take allocationMode ExactCount and count 1; '
                'ask for more bytes, not for more devices"',
            ),
        ],
    )


def policies(accounts: Accounts) -> list[dict[str, Any]]:
    """All policies, each followed by its binding."""
    return [*node_plugin(accounts), *slices(accounts), *node_labels(accounts), *claims()]
