"""Who may use the service: one user, by HTTP basic authentication or by a session's token."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from hymcache.emulator.redfish import urls
from hymcache.emulator.redfish.urls import Payload

SESSION_TIMEOUT_SECONDS = 1800  # unused for so long, a token is void; the default of many services
SESSIONS_MAX = 64  # a client that never logs out must not fill memory: the oldest goes first


@dataclass
class Session:
    """A login. The token is a secret: no payload or log shows it."""

    id: str
    token: str
    used_at: float


class Access:
    """The credentials and the open sessions. Comparisons take the same time wherever the difference is."""

    def __init__(self, user: str | None, password: str | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._user = user
        self._password = password
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._next = 1

    @property
    def is_open(self) -> bool:
        """True where no credentials are asked for."""
        return self._user is None

    def matches(self, user: str, password: str) -> bool:
        """Whether these are the credentials."""
        if self._user is None or self._password is None:
            return True
        right_user = hmac.compare_digest(user.encode(), self._user.encode())
        right_password = hmac.compare_digest(password.encode(), self._password.encode())
        return right_user and right_password

    def allows(self, authorization: str | None, token: str | None) -> bool:
        """Whether a request with these headers (Authorization, X-Auth-Token) may pass."""
        if self.is_open:
            return True
        if token is not None:
            return self._use(token)
        scheme, _, value = (authorization or "").partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            user, colon, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        return bool(colon) and self.matches(user, password)

    def create(self) -> Session:
        """A new session, for a caller who showed the credentials."""
        self._expire()
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        session = Session(str(self._next), secrets.token_urlsafe(32), self._clock())
        self._next += 1
        self._sessions[session.id] = session
        return session

    def delete(self, identifier: str) -> bool:
        """End a session; False where there is none."""
        return self._sessions.pop(identifier, None) is not None

    def clear(self) -> None:
        """End all sessions, as a power cycle does."""
        self._sessions.clear()

    def members(self) -> list[str]:
        """Addresses of the open sessions."""
        self._expire()
        return [f"{urls.SESSIONS}/{identifier}" for identifier in self._sessions]

    def payload(self, identifier: str) -> Payload | None:
        """A session as everybody may see it."""
        self._expire()
        if identifier not in self._sessions:
            return None
        return {
            "@odata.id": f"{urls.SESSIONS}/{identifier}",
            "@odata.type": "#Session.v1_8_0.Session",
            "Id": identifier,
            "Name": f"Session {identifier}",
            "UserName": self._user or "anonymous",
            "SessionType": "Redfish",
        }

    def _use(self, token: str) -> bool:
        self._expire()
        found = False
        for session in self._sessions.values():
            if hmac.compare_digest(session.token.encode(), token.encode()):
                session.used_at = self._clock()
                found = True
        return found

    def _expire(self) -> None:
        oldest = self._clock() - SESSION_TIMEOUT_SECONDS
        self._sessions = {key: session for key, session in self._sessions.items() if session.used_at >= oldest}
