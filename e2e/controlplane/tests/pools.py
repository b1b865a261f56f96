"""A pool of 64 GiB of a made-up driver, on whose device a claim waits for a condition."""

from __future__ import annotations

POOL = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: {name}}}
spec:
  selectors: [{{cel: {{expression: 'device.driver == "example.com"'}}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: {name}}}
spec:
  driver: example.com
  pool: {{name: {name}, generation: 1, resourceSliceCount: 1}}
  nodeSelector:
    nodeSelectorTerms: [{{matchExpressions: [{{key: example.com/pool, operator: In, values: [{name}]}}]}}]
  devices:
  - name: box
    allowMultipleAllocations: true
    bindingConditions: [example.com/Composed]
    bindingFailureConditions: [example.com/Failed]
    capacity:
      memory: {{value: 64Gi, requestPolicy: {{default: 1Gi, validRange: {{min: 1Gi, step: 1Gi}}}}}}
"""
