"""The payloads against DMTF's own schemas, by DMTF's own validator and by jsonschema."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import jsonschema
import pytest

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "redfish"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="DMTF's schemas are not at ../shared/data/redfish")
ASYNC = {"headers": {"Prefer": "respond-async"}}


@pytest.fixture
def busy(served: Any) -> Any:
    """An appliance with one of everything: chunk, connections of both kinds, a pulled cable, session, tasks."""
    chunk = served.compose("r-1", 16).headers["Location"]
    served.connect("r-1", chunk, ["node-a"])
    served.connect("r-1-read", chunk, ["node-b"], ["Read"])
    served.compose("r-2", 16, **ASYNC)
    served.compose("r-3", 160, **ASYNC)
    served.call("POST", "/redfish/v1/SessionService/Sessions", {"UserName": "admin", "Password": "correct horse"})
    served.call("POST", "/admin/v1/links", {"host": "node-c", "state": "down"})
    return served


@needs_data
@pytest.mark.slow
def test_dmtfs_validator_finds_no_failure_in_any_resource(busy: Any, tmp_path: Path) -> None:
    command = [
        str(Path(sysconfig.get_path("scripts")) / "rf_service_validator"),
        *("-r", busy.url, "--authtype", "Basic", "-u", "admin", "-p", "correct horse"),
        *("--schema_directory", str(DATA / "csdl"), "--skipschema", "--nooemcheck", "--logdir", str(tmp_path)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, cwd=tmp_path)
    table = re.search(r"PASS.*\n\S+\n\|\s*(\d+)\s*\|\s*(\d+)\s*\|\s*(\d+)", done.stdout)
    assert table, done.stdout[-2000:] + done.stderr[-2000:]
    passed, warned, failed = map(int, table.groups())
    problems = [line for line in done.stdout.splitlines() if re.search(r"Warn: [1-9]|Fail: [1-9]|ERROR|WARN", line)]
    assert (warned, failed) == (0, 0), problems
    assert passed > 500, "the whole tree was walked"
    for path in [*busy.members(busy.chunks), *busy.members(busy.connections), "/redfish/v1/TaskService/Tasks/2"]:
        assert f"Validating {path}..." in done.stdout


def validator(name: str) -> jsonschema.Draft7Validator:
    """The schema of one resource; what it refers to in other files is taken as right."""
    return jsonschema.Draft7Validator(local(json.loads((DATA / "json-schema" / f"{name}.json").read_text())))


def local(schema: Any) -> Any:
    if isinstance(schema, list):
        return [local(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if not schema.get("$ref", "#").startswith("#"):
        return {}
    return {key: local(value) for key, value in schema.items()}


def resources(busy: Any) -> list[tuple[str, str]]:
    device = "/redfish/v1/Chassis/blade-1/PCIeDevices/1/CXLLogicalDevices"
    return [
        ("MemoryDomain.v1_5_1", busy.domain),
        *(("MemoryChunks.v1_6_2", path) for path in busy.members(busy.chunks)),
        *(("CXLLogicalDevice.v1_3_0", path) for path in busy.members(device)),
        *(("Connection.v1_4_0", path) for path in busy.members(busy.connections)),
        *(("Endpoint.v1_8_2", path) for path in busy.members("/redfish/v1/Fabrics/CXL/Endpoints")),
    ]


@needs_data
def test_the_payloads_follow_the_json_schemas_that_they_name(busy: Any) -> None:
    seen = set()
    for name, path in resources(busy):
        payload = busy.get(path)
        assert payload["@odata.type"] == f"#{name}.{name.partition('.')[0]}"
        assert payload["@odata.id"] == path
        validator(name).validate(payload)
        seen.add(name)
    assert len(seen) == 5


@needs_data
def test_the_check_would_see_a_wrong_payload(busy: Any) -> None:
    for name, path in resources(busy):
        payload = busy.get(path)
        for change in ({"Colour": "blue"}, {"Links": []}, {"@odata.id": None}):
            wrong = {key: value for key, value in {**copy.deepcopy(payload), **change}.items() if value is not None}
            assert list(validator(name).iter_errors(wrong)), (name, change)


@needs_data
def test_the_tree_has_the_shape_of_dmtfs_cxl_mockup(busy: Any) -> None:
    """Every property that our chunk, connection and endpoints share with the mockup's has the same form there."""
    mockup = DATA / "public-cxl"
    pairs = [
        ("Fabrics/CXL/Connections/13", busy.members(busy.connections)[0]),
        ("Fabrics/CXL/Endpoints/T3", "/redfish/v1/Fabrics/CXL/Endpoints/T-1"),
        ("Fabrics/CXL/Endpoints/I3", "/redfish/v1/Fabrics/CXL/Endpoints/I-node-a"),
        ("Chassis/PooledCXLType3/MemoryDomains/1/MemoryChunks/1", busy.members(busy.chunks)[0]),
        ("Chassis/PooledCXLType3/MemoryDomains/1", busy.domain),
    ]
    for theirs, ours in pairs:
        expected = json.loads((mockup / theirs / "index.json").read_text())
        found = busy.get(ours)
        shared = {key for key in expected if key in found}
        assert shared >= {"@odata.id", "@odata.type", "Id", "Name", "Links"}
        for key in shared:
            assert type(found[key]) is type(expected[key]), (ours, key)
        assert {key for key in expected["Links"] if key in found["Links"]}, ours
