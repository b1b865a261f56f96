"""The service around the memory: credentials, sessions, TLS, errors, queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests
import trustme
from hymcache.emulator.media.memfd import Allocate, PageSize
from hymcache.emulator.redfish.sessions import SESSION_TIMEOUT_SECONDS, SESSIONS_MAX, Access
from hymcache.emulator.settings import Settings, SettingsError, host

SESSIONS = "/redfish/v1/SessionService/Sessions"


@pytest.fixture
def anonymous() -> Any:
    with requests.Session() as session:
        session.trust_env = False
        yield session


def test_the_root_is_readable_by_everybody_with_and_without_a_slash(served: Any, anonymous: Any) -> None:
    for path in ("/redfish", "/redfish/v1", "/redfish/v1/", "/redfish/v1/odata", "/redfish/v1/$metadata"):
        response = anonymous.get(served.url + path, timeout=10)
        assert response.status_code == 200
        assert response.headers["OData-Version"] == "4.0"
    assert anonymous.head(served.url + "/redfish/v1/", timeout=10).status_code == 200


@pytest.mark.parametrize("path", ["/redfish/v1/Chassis", "/redfish/v1/nothing", "/admin/v1/regions", "/", SESSIONS])
def test_without_credentials_nothing_else_is_answered(served: Any, anonymous: Any, path: str) -> None:
    response = anonymous.get(served.url + path, timeout=10)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith("Basic")
    assert response.json()["error"]["@Message.ExtendedInfo"][0]["MessageId"].startswith("Base.")


@pytest.mark.parametrize(
    "header",
    ["Basic", "Basic !!!", "Basic YWRtaW4=", "Basic YWRtaW46d3Jvbmc=", "Basic /w==", "Bearer correct", "basic "],
)
def test_wrong_credentials_are_refused(served: Any, anonymous: Any, header: str) -> None:
    response = anonymous.get(served.url + "/redfish/v1/Chassis", headers={"Authorization": header}, timeout=10)
    assert response.status_code == 401


def test_a_session_is_opened_used_and_closed(served: Any, anonymous: Any) -> None:
    credentials = {"UserName": "admin", "Password": "correct horse"}
    response = anonymous.post(served.url + SESSIONS, json=credentials, timeout=10)
    assert response.status_code == 201
    token = {"X-Auth-Token": response.headers["X-Auth-Token"]}
    assert token["X-Auth-Token"] not in response.text
    assert anonymous.get(served.url + "/redfish/v1/Chassis", headers=token, timeout=10).status_code == 200
    assert token["X-Auth-Token"] not in served.call("GET", response.headers["Location"]).text
    assert anonymous.delete(served.url + response.headers["Location"], headers=token, timeout=10).status_code == 204
    assert anonymous.get(served.url + "/redfish/v1/Chassis", headers=token, timeout=10).status_code == 401


def test_a_session_is_not_opened_with_other_credentials(served: Any, anonymous: Any) -> None:
    for credentials in ({"UserName": "admin", "Password": "wrong"}, {"UserName": "root", "Password": "correct horse"}):
        response = anonymous.post(served.url + SESSIONS, json=credentials, timeout=10)
        assert response.status_code == 401
        assert "X-Auth-Token" not in response.headers
    assert served.members(SESSIONS) == []


def test_a_token_ends_when_it_was_not_used_for_the_timeout() -> None:
    now = 0.0
    access = Access("admin", "secret", clock=lambda: now)
    session = access.create()
    now = SESSION_TIMEOUT_SECONDS - 1
    assert access.allows(None, session.token)
    now = 2 * SESSION_TIMEOUT_SECONDS - 2
    assert access.allows(None, session.token), "use prolongs it"
    now = 3 * SESSION_TIMEOUT_SECONDS
    assert not access.allows(None, session.token)
    assert access.members() == []


def test_logins_without_logout_do_not_grow_without_bound() -> None:
    access = Access("admin", "secret")
    sessions = [access.create() for _ in range(SESSIONS_MAX + 1)]
    assert len(access.members()) == SESSIONS_MAX
    assert not access.allows(None, sessions[0].token)
    assert access.allows(None, sessions[-1].token)


def test_the_password_is_in_no_log_and_no_answer(served: Any, caplog: pytest.LogCaptureFixture, anonymous: Any) -> None:
    caplog.set_level("DEBUG")
    body = {"UserName": "admin", "Password": 12345678901}
    answers = [anonymous.post(served.url + SESSIONS, json=body, timeout=10).text]
    body["Password"] = "correct horse"  # type: ignore[assignment]
    response = anonymous.post(served.url + SESSIONS, json=body, timeout=10)
    answers += [response.text, str(response.headers), served.call("GET", SESSIONS).text]
    assert "12345678901" not in answers[0]
    assert "correct horse" not in "".join(answers[:1] + answers[1:])
    assert "correct horse" not in repr(served.settings)
    assert "correct horse" not in caplog.text
    assert response.headers["X-Auth-Token"] not in caplog.text


def test_https_is_spoken_where_there_is_a_certificate(serve: Any, tmp_path: Path, anonymous: Any) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    for number, blob in enumerate(certificate.cert_chain_pems):
        blob.write_to_path(tmp_path / "cert.pem", append=number > 0)
    served = serve(tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "key.pem")
    assert served.url.startswith("https://127.0.0.1:")
    assert anonymous.get(served.url + "/redfish/v1/", verify=str(tmp_path / "ca.pem"), timeout=10).status_code == 200
    with pytest.raises(requests.exceptions.SSLError):
        anonymous.get(served.url + "/redfish/v1/", timeout=10)
    with pytest.raises(requests.exceptions.ConnectionError):
        anonymous.get(served.url.replace("https", "http") + "/redfish/v1/", timeout=10)


def test_an_appliance_beyond_loopback_must_have_credentials() -> None:
    with pytest.raises(SettingsError, match="credentials"):
        Settings(listen="0.0.0.0:8443")
    Settings(listen="127.0.0.1:8443")


@pytest.mark.parametrize(
    "changes",
    [
        {"blade": "a/b"},
        {"blade": ""},
        {"granule_bytes": 1000},
        {"capacity_bytes": 1 << 29},
        {"capacity_bytes": (1 << 30) + 1},
        {"hosts_max": 0},
        {"regions_max": 0},
        {"cable_mode": 0o070},
        {"cable_mode": 0o4700},
        {"regions_max": 1 << 16},
        {"page_size": PageSize.HUGE, "allocate": Allocate.SPARSE},
        {"page_size": PageSize.HUGE, "granule_bytes": 3 << 20, "capacity_bytes": 3 << 30},
        {"reserve_bytes": -1},
        {"listen": "8080"},
        {"listen": "127.0.0.1:99999"},
        {"user": "admin"},
        {"user": "a:b", "password": "x"},
        {"user": "a", "password": ""},
        {"tls_cert": Path("cert.pem")},
        {"hosts": (host("a", "0a0a0a0a-0000-4000-8000-00000000000a"), host("b", "0A0A0A0A00004000800000000000000A"))},
    ],
)
def test_settings_that_no_appliance_can_run_with_are_refused_by_name(changes: Any) -> None:
    with pytest.raises(SettingsError, match=r"^--"):
        Settings(**changes)


def test_a_system_uuid_cannot_lead_out_of_the_cable_folder() -> None:
    for uuid in (
        "../../etc",
        "urn:uuid:0a0a0a0a-0000-4000-8000-00000000000a",
        "{0a0a0a0a-0000-4000-8000-00000000000a}",
    ):
        with pytest.raises(SettingsError):
            host("node", uuid)


def test_what_is_not_there_is_404_and_what_cannot_be_done_is_405(served: Any) -> None:
    assert served.call("GET", "/redfish/v1/Systems").status_code == 404
    assert served.call("POST", "/redfish/v1/Systems", {}).status_code == 404
    assert served.call("DELETE", "/redfish/v1/Chassis/blade-1").status_code == 405
    assert served.call("PATCH", served.chunks, {}).headers["Allow"] == "GET, HEAD, POST"
    assert served.call("GET", "/admin/v1/nothing").status_code == 404
    assert served.call("GET", "/redfish/v1/Chassis/blade-1/PCIeDevices/1/CXLLogicalDevices/00").status_code == 404


def test_expand_shows_what_is_below_and_leaves_links_alone(served: Any) -> None:
    served.compose("r-1", 1)
    served.compose("r-2", 1)
    for query in ("$expand=.", "$expand=.($levels=1)"):
        members = served.get(f"{served.chunks}?{query}")["Members"]
        assert [member["Name"] for member in members] == ["r-1", "r-2"]
        assert members[0]["Links"]["Endpoints"] == [{"@odata.id": "/redfish/v1/Fabrics/CXL/Endpoints/T-1"}]


@pytest.mark.parametrize(
    "query", ["$expand=*", "$expand=.($levels=2)", "$filter=Name eq 'a'", "$select=Name", "$top=1"]
)
def test_a_query_that_is_not_supported_is_refused_instead_of_ignored(served: Any, query: str) -> None:
    assert served.call("GET", f"{served.chunks}?{query}").status_code == 501
    assert served.call("GET", f"{served.chunks}?harmless=1").status_code == 200


def test_a_body_of_megabytes_is_refused(served: Any) -> None:
    response = served.http.post(served.url + served.chunks, data=b"x" * (2 << 20), timeout=10)
    assert response.status_code == 413
