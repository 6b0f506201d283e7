"""Connections to servers on this machine: which cluster they reach, and through which proxy."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from kinetic_k8s.cluster.client import ApiServer
from kinetic_k8s.cluster.connect import connect, connect_to_gke
from kinetic_k8s.cluster.connection import Access, Connection, Credentials
from kinetic_k8s.cluster.kubeconfig import access_of
from kinetic_k8s.errors import (
    ClusterChangedError,
    ClusterUnreachableError,
    NotAuthenticatedError,
)

AUTHORITY = trustme.CA()
CA = AUTHORITY.cert_pem.bytes()
OTHER_CA = trustme.CA().cert_pem.bytes()
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


class Server(ThreadingHTTPServer):
    """An API server, or the proxy to one; it notes the tokens and the proxy's users of its requests."""

    daemon_threads = True

    def __init__(self, scheme: str = "http") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"{scheme}://127.0.0.1:{self.server_port}"
        if scheme == "https":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.paths: list[str] = []
        self.tokens: list[str | None] = []
        self.users: list[str | None] = []
        self.answers: list[int] = []
        """The next statuses; 0: the connection breaks. Then 200."""


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self.server.tokens.append(self.headers["Authorization"])
        self.server.users.append(self.headers["Proxy-Authorization"])
        status = self.server.answers.pop(0) if self.server.answers else 200
        if not status:
            return
        kind = {"kind": "Job"} if status == 200 else {"kind": "Status", "message": "refused"}
        body = json.dumps(kind).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_CONNECT = do_GET

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def two_servers(scheme: str) -> Iterator[tuple[Server, Server]]:
    with ExitStack() as running:
        both = running.enter_context(Server(scheme)), running.enter_context(Server(scheme))
        for server in both:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            running.callback(server.shutdown)
        yield both


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    with two_servers("http") as both:
        yield both


@pytest.fixture
def secure_servers() -> Iterator[tuple[Server, Server]]:
    with two_servers("https") as both:
        yield both


def write(
    folder: Path,
    server: str,
    *,
    ca: bytes = CA,
    token: str = "first",
    user: dict[str, Any] | None = None,
) -> str:
    cluster = {"server": server, "certificate-authority-data": b64encode(ca).decode()}
    config: dict[str, Any] = {
        "current-context": "ours",
        "contexts": [{"name": "ours", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user or {"token": token}}],
    }
    (folder / "config").write_text(json.dumps(config))
    return str(folder / "config")


def test_a_namespace_and_a_name_lead_to_no_other_path(servers: tuple[Server, Server]) -> None:
    access = Access(server=servers[0].url, namespace="ns/configmaps/evil#")

    ApiServer(access).get("Secret", "a/../b?c")

    expected = "/api/v1/namespaces/ns%2Fconfigmaps%2Fevil%23/secrets/a%2F..%2Fb%3Fc"
    assert servers[0].paths == [expected]


@pytest.mark.parametrize("same_address", [False, True])
def test_credentials_of_another_cluster_are_not_sent(
    secure_servers: tuple[Server, Server], tmp_path: Path, same_address: bool
) -> None:
    first, second = secure_servers
    cluster = ApiServer(access_of(kubeconfig=write(tmp_path, first.url)), limit=0.5)
    assert cluster.get("Job", "j") is not None
    new = first.url if same_address else second.url
    write(tmp_path, new, ca=OTHER_CA, token="second")
    first.answers = [401] * 99

    for _ in range(2):
        with pytest.raises(ClusterChangedError) as caught:
            cluster.get("Job", "j")
        assert "context 'ours' of the kubeconfig" in caught.value.message
        assert first.url in caught.value.message
        assert new in caught.value.message
    assert second.tokens == []
    assert set(first.tokens) == {"Bearer first"}


def test_a_broken_connection_is_repaired_whatever_the_context_is_now(
    secure_servers: tuple[Server, Server], tmp_path: Path
) -> None:
    first, second = secure_servers
    cluster = ApiServer(access_of(kubeconfig=write(tmp_path, first.url)))
    cluster.get("Job", "j")
    write(tmp_path, second.url, ca=OTHER_CA)
    first.answers = [0]

    assert cluster.get("Job", "j") is not None
    assert cluster.identity.server == first.url
    assert second.tokens == []


def test_the_certificate_must_have_the_name_of_the_kubeconfig(
    secure_servers: tuple[Server, Server],
) -> None:
    access = Access(server=secure_servers[0].url, ca=CA.decode(), server_name="other")

    with pytest.raises(ClusterUnreachableError, match="'other' doesn't match"):
        ApiServer(access, limit=0.5).get("Job", "j")


def test_no_request_of_many_threads_reaches_the_cluster_of_another_context_or_name(
    secure_servers: tuple[Server, Server], tmp_path: Path, gke: Any
) -> None:
    gke.identity.token = "of-google"
    paths = []
    for number, server in enumerate(secure_servers):
        (folder := tmp_path / str(number)).mkdir()
        paths.append(write(folder, server.url, token=f"of-{number}"))
        gke.add(f"c{number}", server=server.url, ca=CA.decode())

    def ask(number: int) -> None:
        which = number % 2
        if number % 4 < 2:
            cluster = connect(kubeconfig=paths[which])
        else:
            place = ("test-project", "us-central1-a", f"c{which}")
            cluster = connect_to_gke(*place, endpoint=gke.endpoint)
        cluster.get("Job", f"j{which}")

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(ask, range(200)))

    for number, server in enumerate(secure_servers):
        assert {path[-2:] for path in server.paths} == {f"j{number}"}
        assert set(server.tokens) == {f"Bearer of-{number}", "Bearer of-google"}
        assert len(server.paths) == 100


def test_credentials_that_cannot_be_renewed_are_used_as_long_as_they_are_accepted(
    servers: tuple[Server, Server],
) -> None:
    times, calls = [NOON], []

    def login() -> Credentials:
        calls.append(1)
        if len(calls) > 1:
            raise NotAuthenticatedError("Log in.")
        return Credentials(headers={"Authorization": "first"}, renew_at=NOON + timedelta(hours=1))

    access = Access(server=servers[0].url, credentials=login)
    cluster = ApiServer(access, connection=Connection(access, now=lambda: times[0]))
    for hours in (0, 1, 1, 2):
        times[0] = NOON + timedelta(hours=hours)
        assert cluster.get("Job", "j") is not None, "the server decides"

    assert len(calls) == 3, "the renewal is tried again after a while"
    assert servers[0].tokens == ["first"] * 4


@pytest.mark.parametrize("scheme", ["http", "HTTP"])
def test_no_token_is_sent_without_encryption(
    servers: tuple[Server, Server], tmp_path: Path, scheme: str
) -> None:
    address = servers[0].url.replace("http", scheme)
    ApiServer(access_of(kubeconfig=write(tmp_path, address))).get("Job", "j")

    assert servers[0].tokens == [None]


@pytest.mark.parametrize(
    "meanwhile",
    [
        "",
        '{"contexts"',
        "{}",
        {"user": {}},
        {"name": "another one"},
    ],
)
def test_a_kubeconfig_that_is_being_written_anew_is_waited_for_as_a_login(
    secure_servers: tuple[Server, Server], tmp_path: Path, meanwhile: Any
) -> None:
    server, times = secure_servers[0], [NOON]
    file = Path(write(tmp_path, server.url))
    access = access_of(kubeconfig=str(file))
    cluster = ApiServer(access, connection=Connection(access, now=lambda: times[0]))
    assert cluster.get("Job", "j") is not None
    whole = file.read_text()
    if isinstance(meanwhile, dict):  # Without credentials, the user would be nobody.
        config = json.loads(whole)
        config["users"][0] |= meanwhile
        meanwhile = json.dumps(config)
    file.write_text(meanwhile)
    server.answers = [401]

    with pytest.raises(NotAuthenticatedError, match=r"kubeconfig|no credentials .* any more"):
        cluster.get("Job", "j")
    file.write_text(whole)
    times[0] += timedelta(minutes=1)
    assert cluster.get("Job", "j") is not None
    assert set(server.tokens) == {"Bearer first"}


def test_a_token_is_sent_without_the_library_that_reads_certificates(
    secure_servers: tuple[Server, Server], tmp_path: Path
) -> None:
    server, _ = secure_servers
    use = (
        "import sys\n"
        "from kinetic_k8s.cluster.client import ApiServer\n"
        "from kinetic_k8s.cluster.kubeconfig import access_of\n"
        "ApiServer(access_of()).get('Job', 'j')\n"
        "print('kubernetes' in sys.modules)\n"
    )
    known = write(tmp_path, server.url, token="known")
    variables = {**os.environ, "KUBECONFIG": known}  # noqa: TID251 - a child's begins with ours
    done = subprocess.run(
        [sys.executable, "-c", use], env=variables, capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("False\n", "")
    assert server.tokens == ["Bearer known"]


def test_the_token_of_an_identity_provider_is_sent_and_left_to_kubectl_to_renew(
    secure_servers: tuple[Server, Server], tmp_path: Path
) -> None:
    server, provider = secure_servers
    expired = ".".join(b64encode(part).decode() for part in (b"{}", b'{"exp": 1}', b""))
    settings = {
        "id-token": expired,
        "refresh-token": "secret",
        "client-id": "kubernetes",
        "idp-issuer-url": provider.url,
    }
    user = {"auth-provider": {"name": "oidc", "config": settings}}
    cluster = ApiServer(access_of(kubeconfig=write(tmp_path, server.url, user=user)))

    cluster.get("Job", "j")
    assert server.tokens == [f"Bearer {expired}"]
    assert provider.users == []
    user["auth-provider"]["name"] = "azure"
    with pytest.raises(NotAuthenticatedError, match="'azure' is not supported"):
        ApiServer(access_of(kubeconfig=write(tmp_path, server.url, user=user))).get("Job", "j")


def test_threads_that_waited_for_a_failed_attempt_to_get_credentials_have_its_error() -> None:
    calls = []

    def silent() -> Credentials:
        calls.append(1)
        threading.Event().wait(0.2)
        raise ClusterUnreachableError("The token service did not respond.")

    connection = Connection(Access(server="https://localhost", credentials=silent))
    with ThreadPoolExecutor(8) as pool:
        opened = [pool.submit(connection.opened) for _ in range(8)]
        errors = [each.exception(60) for each in opened]

    assert {type(error) for error in errors} == {ClusterUnreachableError}
    assert len(calls) == 1


class SlowLogin:
    """Credentials of an hour; all but the first take until `done`. They are counted from 1."""

    def __init__(self) -> None:
        self.calls = 0
        self.waiting, self.done = threading.Event(), threading.Event()

    def __call__(self) -> Credentials:
        self.calls += 1
        number = self.calls
        if number > 1:
            self.waiting.set()
            assert self.done.wait(60)
        headers = {"Authorization": str(number)}
        return Credentials(headers=headers, renew_at=NOON + timedelta(hours=number))


def test_while_one_thread_waits_for_a_login_others_use_credentials_that_are_accepted(
    servers: tuple[Server, Server],
) -> None:
    login, times = SlowLogin(), [NOON]
    access = Access(server=servers[0].url, credentials=login)
    connection = Connection(access, now=lambda: times[0])
    cluster = ApiServer(access, connection=connection)
    assert cluster.get("Job", "j") is not None
    times[0] = NOON + timedelta(hours=1)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(cluster.get, "Job", "j")
        assert login.waiting.wait(60)

        assert cluster.get("Job", "j") is not None
        assert not first.done()
        # The server does not accept the old ones any more: this request waits for the new ones.
        servers[0].answers = [401, 401]
        rejected = [pool.submit(cluster.get, "Job", "j") for _ in range(2)]
        while servers[0].answers:
            login.done.wait(0.01)
        login.done.set()
        assert None not in (first.result(60), *(each.result(60) for each in rejected))

    assert login.calls == 2
    assert servers[0].tokens[:4] == ["1"] * 4
    assert servers[0].tokens[4:] == ["2"] * 3


def test_a_client_certificate_that_is_written_anew_to_its_file_is_used(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"

    def issue() -> None:
        issued = trustme.CA().issue_cert("ada.example.com")
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)

    issue()
    paths = Credentials(certificate=(str(certificate), str(key)))
    connection = Connection(Access(server="https://localhost", credentials=lambda: paths))
    first = connection.opened()
    issue()
    connection.renew(first)

    assert connection.opened().pool is not first.pool


def test_the_user_of_a_proxy_is_sent_to_it_and_not_shown(servers: tuple[Server, Server]) -> None:
    proxy = servers[0]
    url = f"http://us%40er:p%3Aw@127.0.0.1:{proxy.server_port}"
    expected = "Basic " + b64encode(b"us@er:p:w").decode()
    plain = Access(server="http://10.0.0.1", proxy=url)
    secure = Access(server="https://10.0.0.1", proxy=url)
    proxy.answers = [200, 407, 407]

    assert ApiServer(plain).get("Job", "j") is not None
    with pytest.raises(ClusterUnreachableError, match="407") as caught:
        ApiServer(secure, limit=0.1).get("Job", "j")
    with pytest.raises(OSError, match="407"):
        Connection(secure).opened().dial(5)

    assert len(proxy.users) >= 3
    assert set(proxy.users) == {expected}
    assert "p%3Aw" not in f"{secure!r} {caught.value}"


@pytest.mark.parametrize("hours", [3, -3])
def test_the_time_is_that_of_the_server_if_the_clock_of_this_machine_is_wrong(
    servers: tuple[Server, Server], hours: int
) -> None:
    def wrong() -> datetime:
        return datetime.now(UTC) + timedelta(hours=hours)

    access = Access(server=servers[0].url)
    cluster = ApiServer(access, connection=Connection(access, now=wrong))
    cluster.get("Job", "j")

    assert abs(cluster.within(5).now() - datetime.now(UTC)) < timedelta(seconds=30)
