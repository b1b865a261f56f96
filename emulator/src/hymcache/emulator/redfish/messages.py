"""Errors as Redfish says them: an HTTP status and extended information (DSP0266, "Error responses")."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web
from hymcache.emulator.errors import ApplianceError, Kind
from hymcache.emulator.redfish.urls import Payload

REGISTRY = "Base.1.19"
SUCCESS_FIRST_ERROR = 400


@dataclass(frozen=True)
class Answer:
    """How one kind of error is answered: HTTP status, key in the Base registry, seconds to wait before a retry."""

    status: int
    message: str
    retry_seconds: int | None = None


ANSWERS = {
    Kind.NOT_FOUND: Answer(404, "ResourceNotFound"),
    Kind.BAD_VALUE: Answer(400, "PropertyValueError"),
    Kind.EXISTS: Answer(409, "ResourceAlreadyExists"),
    Kind.IN_USE: Answer(409, "ResourceInUse"),
    Kind.BUSY: Answer(409, "ResourceInStandby", 1),
    Kind.HOST_LIMIT: Answer(409, "CreateLimitReachedForResource"),
    Kind.NO_CAPACITY: Answer(507, "ResourceExhaustion"),
    Kind.POWER_LOST: Answer(503, "ServiceTemporarilyUnavailable", 1),
}
BY_STATUS = {
    400: "GeneralError",
    401: "NoValidSession",
    404: "ResourceMissingAtURI",
    405: "OperationNotAllowed",
    413: "PayloadTooLarge",
    500: "InternalError",
    501: "QueryNotSupported",
    503: "ServiceTemporarilyUnavailable",
    507: "ResourceExhaustion",
}


def body(message: str, text: str, resolution: str, args: Sequence[str] = ()) -> Payload:
    """The JSON of an error."""
    identifier = f"{REGISTRY}.{message}"
    return {
        "error": {
            "code": identifier,
            "message": text,
            "@Message.ExtendedInfo": [
                {
                    "@odata.type": "#Message.v1_3_0.Message",
                    "MessageId": identifier,
                    "Message": text,
                    "MessageArgs": list(args),
                    "MessageSeverity": "Critical",
                    "Resolution": resolution,
                }
            ],
        }
    }


def refusal(error: ApplianceError) -> web.Response:
    """The answer to a request that the appliance refused."""
    answer = ANSWERS[error.kind]
    response = web.json_response(body(answer.message, str(error), error.remedy, [error.thing]), status=answer.status)
    if answer.retry_seconds is not None:
        response.headers["Retry-After"] = str(answer.retry_seconds)
    return response


def plain(status: int, text: str, resolution: str) -> web.Response:
    """An answer with a status alone as its reason."""
    return web.json_response(body(BY_STATUS.get(status, "GeneralError"), text, resolution), status=status)


def messages_of(response: web.Response) -> list[Payload]:
    """The messages in an answer, for a task's report; empty for a success."""
    if response.status < SUCCESS_FIRST_ERROR or not isinstance(response.body, bytes):
        return []
    found = json.loads(response.body)["error"]["@Message.ExtendedInfo"]
    assert isinstance(found, list)
    return found
