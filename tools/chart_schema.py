"""JSON schema of the chart's values: every value with type, unit and limits, and no other name accepted.

The settings of the programs are taken from their own settings classes, so that a setting exists in one place only.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from hymcache.dra.settings import Settings as PluginSettings
from hymcache.operator.settings import Settings as OperatorSettings

Schema = dict[str, Any]

OPERATOR_FIXED = {"namespace", "identity", "health_address"}
PLUGIN_FIXED = {
    *("node_name", "pod_uid", "driver", "kubeconfig", "listen"),
    *("plugin_dir", "registry_dir", "cdi_dir", "cable_dir", "boot_id_path"),
}
"""Settings that the chart gives itself: from the pod, or from a value that decides a mount as well."""

JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
LIMITS = ("type", "enum", "const", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")

QUANTITY = r"^[1-9][0-9]*(Mi|Gi|Ti)$"
UUID = r"^[0-9A-Fa-f]{8}-?([0-9A-Fa-f]{4}-?){3}[0-9A-Fa-f]{12}$"
ABSOLUTE = r"^/[^\s]*$"


def closed(description: str, **properties: Schema) -> Schema:
    """An object that has these properties and no others."""
    return {"type": "object", "description": description, "additionalProperties": False, "properties": properties}


def text(description: str, **limits: Any) -> Schema:
    """A string."""
    return {"type": "string", "description": description, **limits}


def number(description: str, minimum: int, maximum: int) -> Schema:
    """A whole number within limits."""
    return {"type": "integer", "description": description, "minimum": minimum, "maximum": maximum}


def flag(description: str) -> Schema:
    """A boolean."""
    return {"type": "boolean", "description": description}


def choice(description: str, *words: str) -> Schema:
    """One of some words."""
    return {"type": "string", "description": description, "enum": list(words)}


def kubernetes(description: str, kind: str) -> Schema:
    """A value that is passed on as it is, checked by the API server."""
    return {"type": kind, "description": description}


def image(repository: str) -> Schema:
    """Where an image is."""
    return closed(
        f"Image, by default {repository}.",
        repository=text("Repository, without the registry.", minLength=1),
        tag=text("Tag; empty: the chart's appVersion."),
    )


def pod(name: str) -> dict[str, Schema]:
    """What every component lets users say about its pods."""
    return {
        "image": image(f"hymcache/{name}"),
        "resources": closed(
            "Requests and limits of the container.",
            requests=kubernetes("Quantities by resource.", "object"),
            limits=kubernetes("Quantities by resource.", "object"),
        ),
        "nodeSelector": kubernetes("Labels that a node must have.", "object"),
        "tolerations": kubernetes("Taints that are tolerated.", "array"),
        "affinity": kubernetes("Affinity of the pods.", "object"),
        "podAnnotations": {
            "type": "object",
            "description": "Annotations of the pods.",
            "additionalProperties": {"type": "string"},
        },
    }


def camel(name: str) -> str:
    """`lease_seconds` as values are written: `leaseSeconds`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def settings(properties: dict[str, Schema]) -> Schema:
    """The settings of one program."""
    return closed("Settings of the program; what is left out keeps its default.", **properties)


def operator_settings() -> Schema:
    """What the operator's settings class says, less what the chart decides."""
    return settings(
        {
            camel(field.name): {
                "type": JSON_TYPES[type(field.default)],
                "description": f"{field.metadata['help']} Default: {field.default!r}.",
            }
            for field in dataclasses.fields(OperatorSettings)
            if field.name not in OPERATOR_FIXED
        }
    )


def plugin_settings() -> Schema:
    """What the plugin's settings class says, less what the chart decides."""
    fields = PluginSettings.model_json_schema()["properties"]
    return settings(
        {
            camel(name): {
                **{key: field[key] for key in LIMITS if key in field},
                "description": f"{field['description']} Default: {field.get('default')!r}.",
            }
            for name, field in fields.items()
            if name not in PLUGIN_FIXED
        }
    )


def operator() -> Schema:
    """Values of the operator."""
    return closed(
        "Operator: composes regions, publishes what can be claimed.",
        **pod("operator"),
        replicas=number("Pods; all but the leader wait for its Lease.", 1, 5),
        priorityClassName=text("PriorityClass of the pods."),
        settings=operator_settings(),
    )


def plugin() -> Schema:
    """Values of the node plugin."""
    folder: dict[str, Any] = {"pattern": ABSOLUTE}
    return closed(
        "Node plugin: attaches regions to pods.",
        **pod("plugin"),
        kubeletDir=text("Root folder of the kubelet on the nodes.", **folder),
        cdiDir=text("Where the container runtime looks for CDI files.", **folder),
        cableDir=text("Folder of the appliances' sockets on the node.", **folder),
        bootIdFile=text("File on the node that changes with each boot; empty: the kernel's.", pattern=r"^(/[^\s]*)?$"),
        priorityClassName=text("PriorityClass of the pods."),
        terminationGracePeriodSeconds=number("Time to finish running calls, in seconds.", 0, 600),
        settings=plugin_settings(),
    )


def appliance() -> Schema:
    """Values of the emulated appliance."""
    size: dict[str, Any] = {"pattern": QUANTITY}
    host = closed("A host.", name=text("Its name.", minLength=1), systemUUID=text("Its system UUID.", pattern=UUID))
    host["required"] = ["name", "systemUUID"]
    return closed(
        "Emulated memory appliance, for clusters without CXL hardware.",
        **pod("appliance"),
        enabled=flag("Run one."),
        blade=text("Name of its blade.", pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"),
        capacity=text("Bytes that regions may take together, as a quantity.", **size),
        granule=text("Sizes of regions are multiples of this quantity.", **size),
        reserve=text("Memory that stays free on its node, as a quantity.", pattern=r"^(0|[1-9][0-9]*(Mi|Gi|Ti))$"),
        allocate=choice("When pages are made: at compose, or when they are touched.", "eager", "sparse"),
        coherence=choice("What is declared about coherence between hosts.", "software", "hardware"),
        maxHosts=number("Hosts that may use one region.", 1, 256),
        cableRoot=text("Folder on its node with one folder of sockets per host.", pattern=ABSOLUTE),
        hosts={
            "type": "array",
            "description": "Cabled hosts; empty: every node that the cluster has when the chart is rendered.",
            "items": host,
        },
    )


def values_schema() -> Schema:
    """The whole schema."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the hymcache chart",
        **closed(
            "Sizes are Kubernetes quantities, times are seconds.",
            **{"global": kubernetes("Helm's values for all charts; not used.", "object")},
            images=closed(
                "What all images have in common.",
                registry=text("Put before every repository; empty: the runtime's default registry."),
                pullPolicy=choice("When the runtime pulls.", "Always", "IfNotPresent", "Never"),
                pullSecrets={"type": "array", "description": "Names of Secrets.", "items": {"type": "string"}},
            ),
            operator=operator(),
            plugin=plugin(),
            appliance=appliance(),
            uninstall=closed(
                "What an uninstall checks and removes.",
                check=flag("Refuse while claims are allocated or regions exist."),
                deleteCRDs=flag("Remove our kinds at the end."),
            ),
        ),
    }


def rendered() -> str:
    """The schema as the chart carries it."""
    return json.dumps(values_schema(), indent=2) + "\n"
