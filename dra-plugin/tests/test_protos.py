"""The protocol files against what Kubernetes publishes, and the stubs against the protocol files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
OURS = ROOT / "dra-plugin" / "src" / "hymcache" / "dra" / "_proto"
MODULE = "k8s.io/kubelet@v0.37.2"
PAIRS = {
    "dra_v1": "dra/v1",
    "dra_v1beta1": "dra/v1beta1",
    "health_v1": "dra-health/v1",
    "health_v1alpha1": "dra-health/v1alpha1",
    "registration": "pluginregistration/v1",
}


def test_stubs_are_what_their_protos_generate() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "gen_kubelet_stubs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def kubelet_module() -> Path:
    if shutil.which("go") is None:
        pytest.skip("no Go toolchain, so the published .proto files cannot be had")
    done = subprocess.run(
        ["go", "mod", "download", "-json", MODULE],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**os.environ, "GOFLAGS": "-mod=mod", "GOWORK": "off"},
    )
    if done.returncode:
        pytest.skip(f"{MODULE} is neither in the module cache nor to be had from the proxy")
    return Path(json.loads(done.stdout)["Dir"])


def described(path: Path, out: Path) -> descriptor_pb2.FileDescriptorProto:
    target = out / f"{path.parent.name}-{path.stem}.pb"
    assert protoc.main(["protoc", f"-I{path.parent}", f"--descriptor_set_out={target}", path.name]) == 0
    found = descriptor_pb2.FileDescriptorSet()
    found.ParseFromString(target.read_bytes())
    return found.file[0]


def fields(message: descriptor_pb2.DescriptorProto, prefix: str = "") -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {
        f"{prefix}{message.name}.{field.name}": (
            field.number,
            field.type,
            field.label,
            field.type_name,
            field.proto3_optional,
        )
        for field in message.field
    }
    for nested in message.nested_type:
        found |= fields(nested, f"{prefix}{message.name}.")
    return found


@pytest.mark.parametrize("name", PAIRS)
def test_numbers_types_and_names_are_those_of_kubernetes(name: str, kubelet_module: Path, tmp_path: Path) -> None:
    ours = described(OURS / f"{name}.proto", tmp_path)
    theirs = described(kubelet_module / "pkg" / "apis" / PAIRS[name] / "api.proto", tmp_path)
    assert ours.package == theirs.package
    for one, other in ((ours, theirs), (theirs, ours)):
        assert [m.name for m in one.message_type if m.name not in {n.name for n in other.message_type}] == []
    messages = {message.name: message for message in theirs.message_type}
    for message in ours.message_type:
        assert fields(message) == fields(messages[message.name])
    enums = {enum.name: {value.name: value.number for value in enum.value} for enum in ours.enum_type}
    assert enums == {enum.name: {value.name: value.number for value in enum.value} for enum in theirs.enum_type}
    for service, other_service in zip(ours.service, theirs.service, strict=True):
        assert service.name == other_service.name
        calls = [
            {(m.name, m.input_type, m.output_type, m.server_streaming) for m in one.method}
            for one in (service, other_service)
        ]
        assert calls[0] == calls[1]
