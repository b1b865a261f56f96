"""Tokens, RBAC and admission policies are a cluster's: what a service account may do here it may do there."""

from __future__ import annotations

import pytest

from controlplane import POD, Api, ApiException, ControlPlane, wait
from controlplane import workloads as w
from controlplane.manifests import apply_all

pytestmark = pytest.mark.controlplane

WHOAMI = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {}}


def test_token_bound_to_a_pod_names_its_node(control_plane: ControlPlane, namespace: str) -> None:
    w.add_node(control_plane.api, f"{namespace}-a")
    token = control_plane.token(namespace, "plugin", node=f"{namespace}-a")
    user = control_plane.api_as(token).create(WHOAMI)["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{namespace}:plugin"
    assert user["extra"]["authentication.kubernetes.io/node-name"] == [f"{namespace}-a"]


def test_token_of_a_service_account_without_a_role_is_refused(control_plane: ControlPlane, namespace: str) -> None:
    stranger = control_plane.api_as(control_plane.token(namespace, "stranger"))
    with pytest.raises(ApiException) as refusal:
        stranger.list(POD, namespace)
    assert refusal.value.status == 403


def test_wrong_token_is_nobody(control_plane: ControlPlane) -> None:
    with pytest.raises(ApiException) as refusal:
        control_plane.api_as("not-a-token").list(POD, "default")
    assert refusal.value.status == 401


POLICY = """
apiVersion: v1
kind: List
items:
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingAdmissionPolicy
  metadata: {{name: {name}}}
  spec:
    failurePolicy: Fail
    matchConstraints:
      resourceRules: [{{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}}]
    matchConditions: [{{name: here, expression: 'object.metadata.namespace == "{name}"'}}]
    variables:
    - {{name: node, expression: "request.userInfo.extra[?'authentication.kubernetes.io/node-name'][0].orValue('')"}}
    validations:
    - expression: variables.node == object.metadata.name
      message: a node may write the object of its own name only
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingAdmissionPolicyBinding
  metadata: {{name: {name}}}
  spec: {{policyName: {name}, validationActions: [Deny]}}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: RoleBinding
  metadata: {{name: plugin, namespace: {name}}}
  roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}}
  subjects: [{{kind: ServiceAccount, name: plugin, namespace: {name}}}]
"""


def test_admission_policy_holds_a_plugin_to_its_own_node(control_plane: ControlPlane, api: Api, namespace: str) -> None:
    node, other = f"{namespace}-a", f"{namespace}-b"
    w.add_node(api, node)
    apply_all(api, POLICY.format(name=namespace))
    plugin = control_plane.api_as(control_plane.token(namespace, "plugin", node=node))

    def write(name: str) -> int:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
        try:
            plugin.create(body, dry_run=True)
        except ApiException as refusal:
            return int(refusal.status)
        return 201

    wait("the policy to be in force", lambda: write(other) == 422)
    assert write(node) == 201
