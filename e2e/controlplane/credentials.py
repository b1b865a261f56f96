"""Who may speak to the API server: the token file, the service-account key, kubeconfigs."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

ADMIN = "admin"
MANAGER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
USERS = {ADMIN: "system:masters", MANAGER: "", SCHEDULER: ""}


@dataclass(frozen=True)
class Credentials:
    """Files under one folder, written once per control plane."""

    folder: Path
    tokens: dict[str, str]

    @property
    def token_file(self) -> Path:
        """The API server's static tokens: the admin and the two components."""
        return self.folder / "tokens.csv"

    @property
    def key_file(self) -> Path:
        """Private key of all service-account tokens."""
        return self.folder / "service-accounts.key"

    def kubeconfig(self, user: str, server: str, ca: Path, token: str | None = None) -> Path:
        """Write a kubeconfig for a user of the token file, or for any name with a token of its own; return its path."""
        path = self.folder / f"{user.replace(':', '_').replace('/', '_')}.kubeconfig"
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "plane", "cluster": {"server": server, "certificate-authority": str(ca)}}],
            "users": [{"name": user, "user": {"token": token or self.tokens[user]}}],
            "contexts": [{"name": "plane", "context": {"cluster": "plane", "user": user}}],
            "current-context": "plane",
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path


def create(folder: Path) -> Credentials:
    """Make new tokens and a new key in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    credentials = Credentials(folder, {user: secrets.token_hex(16) for user in USERS})
    rows = [f'{credentials.tokens[user]},{user},uid-{user},"{group}"' for user, group in USERS.items()]
    key = ec.generate_private_key(ec.SECP256R1())
    for path, data in (
        (credentials.token_file, ("\n".join(rows) + "\n").encode()),
        (
            credentials.key_file,
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
            ),
        ),
    ):
        path.touch(mode=0o600)
        path.write_bytes(data)
    return credentials
