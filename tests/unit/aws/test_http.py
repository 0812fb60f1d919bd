"""The plain connection: what it takes, what it leaves to a general client, and when it gives up."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.aws.certificates import inspected
from watcher.aws.http import HTTPConnections, OverdueAnswerError, Response, Timeouts
from watcher.errors import UnexpectedAnswerError

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
TIMEOUTS = Timeouts(5, 5, 5)
HEADERS = {"x-amz-target": "Streams.GetRecords"}


class Server:
    """Answers each request with the next of the given bytes; an empty one closes the connection."""

    def __init__(self, answers: list[bytes], context: ssl.SSLContext | None = None) -> None:
        self.answers, self.context = answers, context
        self.requests: list[bytes] = []
        self.connections = 0
        self.hangs_up = False
        self.hung_up = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        scheme = "https" if context else "http"
        self.url = f"{scheme}://127.0.0.1:{self.listener.getsockname()[1]}/"
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def serve(self) -> None:
        with suppress(OSError):  # the listener is closed
            while self.answers:
                connected, _ = self.listener.accept()
                self.connections += 1
                with suppress(OSError, IndexError):  # hung up, or no answer is wanted any more
                    if self.context:
                        connected = self.context.wrap_socket(connected, server_side=True)
                    self.converse(connected)
                connected.close()
                self.hung_up.set()

    def converse(self, connected: socket.socket) -> None:
        while self.answers:
            received = b""
            while b"\r\n\r\n" not in received:
                if not (chunk := connected.recv(65536)):
                    return
                received += chunk
            self.requests.append(received)
            answer = self.answers.pop(0)
            connected.sendall(answer)
            if not answer or b"close" in answer or self.hangs_up:
                return


@contextmanager
def serving(*answers: bytes, context: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(list(answers), context)
    server.thread.start()
    try:
        yield server
    finally:
        server.answers.clear()
        with suppress(OSError):
            server.listener.shutdown(socket.SHUT_RDWR)  # it may wait for one more connection
        server.listener.close()
        # A thread that stays has all later tests of this process start theirs by a fork server.
        server.thread.join(60)


def connections(
    server: Server, ca_file: str = "", timeouts: Timeouts = TIMEOUTS
) -> closing[HTTPConnections]:
    return closing(HTTPConnections(server.url, ca_file=ca_file, timeouts=timeouts))


def test_an_answer_comes_whole_over_one_connection() -> None:
    large = b"x" * 900_000
    head = b"HTTP/1.1 200 OK\r\nX-Amzn-RequestId:  A1 \r\ncontent-length: 900000\r\n\r\n"
    with serving(OK, head + large, OK) as server, connections(server) as http:
        assert http.post(HEADERS, b"{}").wait() == Response(200, {"content-length": "2"}, b"ok")
        answer = http.post(HEADERS, b"{}").wait()
        assert answer is not None
        assert answer.body == large
        assert answer.headers["x-amzn-requestid"] == "A1"
        http.post(HEADERS, b"{}").wait()
        assert server.connections == 1
        assert server.requests[0].startswith(b"POST / HTTP/1.1\r\nx-amz-target: Streams.GetRecords")


def test_an_answer_that_is_not_taken_is_nobody_elses() -> None:
    with serving(OK, OK.replace(b"ok", b"no")) as server, connections(server) as http:
        left = http.post(HEADERS, b"{}")
        del left
        assert http.post(HEADERS, b"{}").wait() == Response(200, {"content-length": "2"}, b"no")
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Encoding: gzip\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ],
)
def test_an_answer_of_another_make_is_for_a_general_client_from_now_on(answer: bytes) -> None:
    with serving(answer) as server, connections(server) as http:
        assert http.post(HEADERS, b"{}").wait() is None
        assert not http.usable


def test_an_answer_that_announces_more_than_fits_is_refused_unread() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\nok"
    with serving(answer, OK) as server, connections(server) as http:
        with pytest.raises(UnexpectedAnswerError, match="more than 64 MB"):
            http.post(HEADERS, b"{}").wait()
        assert http.usable and http.post(HEADERS, b"{}").wait()


@pytest.mark.parametrize(
    ("first", "hangs_up", "is_taken"),
    [
        (b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", False, False),
        (OK, True, True),
        (OK.replace(b"\r\n", b"\r\nConnection: close\r\n", 1), False, True),
    ],
    ids=["strange", "closed meanwhile", "closing"],
)
def test_a_connection_that_is_not_as_it_was_is_replaced(
    first: bytes, hangs_up: bool, is_taken: bool
) -> None:
    with serving(first, OK) as server, connections(server) as http:
        server.hangs_up = hangs_up
        assert (http.post(HEADERS, b"{}").wait() is not None) == is_taken
        assert not hangs_up or server.hung_up.wait(60)
        assert http.usable and http.post(HEADERS, b"{}").wait()
        assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX: close",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\nX: close\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: close\r\n\r\nok and more",
    ],
)
def test_an_answer_that_is_not_whole_is_an_error_and_spoils_nothing(answer: bytes) -> None:
    with serving(answer, OK) as server, connections(server) as http:
        with pytest.raises(ConnectionError):
            http.post(HEADERS, b"{}").wait()
        assert http.usable
        assert http.post(HEADERS, b"{}").wait()


def test_silence_is_a_timeout() -> None:
    with serving(OK) as server, connections(server, timeouts=Timeouts(5, 0.1, 5)) as http:
        server.converse = lambda connected: threading.Event().wait(2)  # type: ignore[method-assign, assignment]
        with pytest.raises(TimeoutError):
            http.post(HEADERS, b"{}").wait()
        assert http.usable


def test_tls_trusts_the_given_certificates_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    context, ours = inspected(tmp_path)
    _, others = inspected(tmp_path / "others")
    with serving(OK, OK, OK, context=context) as server:
        with connections(server, ours) as http:
            assert http.post(HEADERS, b"{}").wait()
            assert http.post(HEADERS, b"{}").wait()
            assert server.connections == 1
        with connections(server, others) as http, pytest.raises(ssl.SSLCertVerificationError):
            http.post(HEADERS, b"{}").wait()
        missing = str(tmp_path / "missing")
        with connections(server, missing) as http, pytest.raises(OSError, match="No such file"):
            http.post(HEADERS, b"{}").wait()


@pytest.mark.parametrize("more", [b"Content-Length: 1000\r\n\r\n", b"X: "], ids=["body", "head"])
def test_an_answer_that_drips_is_given_up_at_its_deadline(more: bytes) -> None:
    def drip(connected: socket.socket) -> None:
        connected.recv(65536)
        for byte in b"HTTP/1.1 200 OK\r\n" + more + b"x" * 1000:
            connected.sendall(bytes([byte]))
            time.sleep(0.2)

    with serving(OK) as server, connections(server, timeouts=Timeouts(5, 5, 0.3)) as http:
        server.converse = drip  # type: ignore[method-assign]
        began = time.monotonic()
        with pytest.raises(OverdueAnswerError, match=r"no whole answer within 0\.3 s"):
            http.post(HEADERS, b"{}").wait()
        assert time.monotonic() - began < 60  # all of it would take 200 s and more
        assert http.usable


def test_a_head_without_an_end_is_no_answer() -> None:
    endless = b"HTTP/1.1 200 OK\r\n" + b"X: close" + b"x" * 70_000
    with serving(endless, OK) as server, connections(server) as http:
        assert http.post(HEADERS, b"{}").wait() is None
        assert http.usable
        assert http.post(HEADERS, b"{}").wait()
