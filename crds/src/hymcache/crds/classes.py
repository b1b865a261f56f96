"""DeviceClasses: one per `mode` of a device.

Each selects the mode and not the driver alone, which would hand out retained and static regions to anybody.
"""

from __future__ import annotations

from typing import Any

from hymcache.crds.names import ATTRIBUTE_MODE, CLASS_EXCLUSIVE, CLASS_REGION, CLASS_SHARED, DRIVER

MODES = {CLASS_SHARED: "shared", CLASS_EXCLUSIVE: "exclusive", CLASS_REGION: "region"}


def device_classes() -> list[dict[str, Any]]:
    """The three classes of the driver."""
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {
                "selectors": [
                    {
                        "cel": {
                            "expression": f'device.driver == "{DRIVER}" && '
                            f'device.attributes["{DRIVER}"].?{ATTRIBUTE_MODE}.orValue("") == "{mode}"'
                        }
                    }
                ]
            },
        }
        for name, mode in MODES.items()
    ]
