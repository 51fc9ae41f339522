"""The chaos proxy itself: each fault does what its description says, and nothing else."""

import socket
import threading
import time

import pytest
from chaos_proxy import BOTH, TO_CLIENT, TO_SERVER, ChaosProxy
from lockbroker import free_port, wait_until


class Echo:
    """A server that answers each line with the same line in upper case, and keeps what it got."""

    def __init__(self, address):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.listener = socket.socket(family)
        self.listener.bind(address)
        self.listener.listen()
        self.got = b""
        self.ends = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        with sock:
            try:
                while data := sock.recv(65536):
                    self.got += data
                    sock.sendall(data.upper())
                self.ends.append("eof")
            except OSError as error:
                self.ends.append(type(error).__name__)


def connect(proxy):
    address = proxy.address
    sock = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    sock.settimeout(30)
    sock.connect(address)
    return sock


def receive(sock, count):
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        assert more, f"the end after {data}"
        data += more
    return data


def ask(sock, text=b"hello\n"):
    begin = time.monotonic()
    sock.sendall(text)
    assert receive(sock, len(text)) == text.upper()
    return time.monotonic() - begin


def is_silent(sock, seconds=0.15):
    sock.settimeout(seconds)
    try:
        data = sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(30)
    raise AssertionError(f"not silent: {data}")


def is_reset(sock, tcp):
    """A reset with TCP; with Unix sockets an end of either kind."""
    try:
        data = sock.recv(1)
    except ConnectionResetError:
        return True
    assert data == b"" and not tcp, data
    return True


@pytest.fixture(params=["unix", "tcp"])
def kind(request):
    return request.param


@pytest.fixture
def echo(lab, kind):
    server = Echo(lab.path("echo.sock") if kind == "unix" else ("127.0.0.1", free_port()))
    yield server
    server.listener.close()


@pytest.fixture
def proxy(lab, kind, echo):
    listen = lab.path("proxy.sock") if kind == "unix" else ("127.0.0.1", 0)
    with ChaosProxy(listen, echo.listener.getsockname()) as it:
        yield it


@pytest.fixture
def sock(proxy):
    with connect(proxy) as it:
        yield it


def test_without_faults_all_passes(proxy, sock, echo):
    assert ask(sock) < 30
    big = b"x" * 3_000_000 + b"\n"
    sender = threading.Thread(target=sock.sendall, args=(big,))
    sender.start()
    assert receive(sock, len(big)) == big.upper()
    sender.join()
    sock.shutdown(socket.SHUT_WR)
    assert sock.recv(1) == b""
    wait_until(lambda: proxy.live() == 0, "the link ends")
    assert echo.ends == ["eof"] and proxy.accepted == 1 and proxy.resets == 0
    assert proxy.passed == {TO_SERVER: len(big) + 6, TO_CLIENT: len(big) + 6}


def test_delay(proxy, sock):
    proxy.delay(100, jitter_ms=20)
    assert ask(sock) >= 0.2
    proxy.delay(0)
    proxy.delay(150, direction=TO_CLIENT)
    assert ask(sock) >= 0.15


def test_delayed_data_stays_in_order(proxy, sock):
    proxy.delay(1, jitter_ms=50)
    for n in range(50):
        sock.sendall(b"%02d" % n)
    assert receive(sock, 100) == b"".join(b"%02d" % n for n in range(50))


def test_split_and_throttle(proxy, sock):
    proxy.split(1, gap_ms=10, direction=TO_CLIENT)
    sock.sendall(b"hello\n")
    begin = time.monotonic()
    pieces = [sock.recv(100) for _ in range(3)]
    assert pieces[0] == b"H" and b"".join(pieces) == b"HELLO\n"[:len(b"".join(pieces))]
    receive(sock, 6 - len(b"".join(pieces)))
    assert time.monotonic() - begin >= 0.04
    proxy.heal()
    proxy.throttle(1000)
    assert ask(sock, b"y" * 300 + b"\n") >= 0.25


def test_drop_to_the_client_leaves_a_hole(proxy, sock, kind, echo):
    ask(sock)
    proxy.drop(TO_CLIENT)
    sock.sendall(b"lost\n")
    wait_until(lambda: echo.got.endswith(b"lost\n"), "it reached the server")
    wait_until(lambda: proxy.swallowed[TO_CLIENT] == 5, "it is swallowed")
    assert is_silent(sock)
    proxy.heal()
    assert is_reset(sock, kind == "tcp")
    with connect(proxy) as another:
        ask(another)


def test_drop_to_the_server_swallows_the_end_too(proxy, sock, echo):
    ask(sock)
    proxy.drop(TO_SERVER)
    sock.sendall(b"lost\n")
    sock.close()
    wait_until(lambda: proxy.swallowed[TO_SERVER] == 5, "it is swallowed")
    with connect(proxy) as another:  # by now the proxy has read the end, too
        another.sendall(b"lost too\n")
        wait_until(lambda: proxy.swallowed[TO_SERVER] == 14, "all is swallowed")
    assert echo.got == b"hello\n" and echo.ends == []
    proxy.heal()
    wait_until(lambda: echo.ends, "the server sees an end at last")


def test_drop_what_contains_something(proxy, sock):
    proxy.drop(TO_CLIENT, containing=b"SECOND")
    ask(sock, b"first\n")
    sock.sendall(b"second\n")
    wait_until(lambda: proxy.swallowed[TO_CLIENT] == 7, "it is swallowed")
    ask(sock, b"third\n")
    proxy.heal()
    ask(sock, b"second\n")


def test_hold_and_release(proxy, sock, echo):
    proxy.hold(TO_CLIENT)
    sock.sendall(b"hello\n")
    wait_until(lambda: echo.got == b"hello\n", "the request passes")
    assert is_silent(sock)
    proxy.release()
    assert receive(sock, 6) == b"HELLO\n"


def test_partition_delivers_late_what_was_given_up(proxy, sock, echo):
    ask(sock)
    proxy.partition()
    sock.sendall(b"zombie\n")
    sock.close()
    with connect(proxy) as another:
        another.sendall(b"new\n")
        assert is_silent(another)
        assert echo.got == b"hello\n" and echo.ends == []
        proxy.release()
        assert receive(another, 4) == b"NEW\n"
    wait_until(lambda: b"zombie\n" in echo.got and echo.ends, "late, but whole")


def test_a_held_link_keeps_little(proxy, sock):
    proxy.hold(TO_SERVER)
    sock.settimeout(0.3)
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 50_000_000:
            sent += sock.send(b"z" * 65536)
    assert sent < 20_000_000
    proxy.release()
    sock.settimeout(30)
    assert receive(sock, sent) == b"Z" * sent


def test_cut(proxy, sock, kind, echo):
    ask(sock)
    proxy.cut()
    assert is_reset(sock, kind == "tcp")
    wait_until(lambda: echo.ends, "the server sees it too")
    assert proxy.live() == 0 and proxy.resets == 1
    with connect(proxy) as another:
        ask(another)


def test_refuse(proxy, sock):
    ask(sock)
    proxy.refuse()
    for _ in range(2):
        with pytest.raises((ConnectionRefusedError, FileNotFoundError)):
            connect(proxy)
    ask(sock)  # whoever is connected stays
    proxy.refuse(False)
    with connect(proxy) as another:
        ask(another)


@pytest.mark.parametrize("direction", BOTH)
def test_reset_after_some_bytes(proxy, sock, kind, echo, direction):
    ask(sock)
    proxy.reset_after(3, direction)
    sock.sendall(b"abcdef\n")
    proxy.wait_fired()
    wait_until(lambda: echo.ends, "the server sees it")
    assert proxy.passed[direction] == 9
    if kind == "unix":  # a reset may discard what it overtakes
        assert echo.got == (b"hello\nabc" if direction == TO_SERVER else b"hello\nabcdef\n")


@pytest.mark.parametrize("when", ["before", "forwarded", "executed"])
def test_reset_at_a_request(proxy, sock, kind, echo, when):
    proxy.reset_at_request(when, containing=b"set")
    ask(sock, b"get\n")
    sock.sendall(b"SET\n")
    assert is_reset(sock, kind == "tcp")
    proxy.wait_fired()
    wait_until(lambda: echo.ends, "the server sees it")
    if when == "before":
        assert echo.got == b"get\n"
    elif when == "executed" or kind == "unix":
        assert echo.got == b"get\nSET\n"
    with connect(proxy) as another:
        ask(another, b"set\n")  # it was armed for one time


def test_inject(proxy, sock):
    ask(sock)
    proxy.inject(b"!garbage!")
    sock.sendall(b"hello\n")
    assert receive(sock, 15) == b"!garbage!HELLO\n"
    ask(sock)
    assert proxy.fired == 1


def test_only_some_links(proxy, sock, kind):
    ask(sock, b"subscribe x\n")
    with connect(proxy) as another:
        ask(another)
        proxy.only(b"SUBSCRIBE")
        proxy.hold(BOTH)
        ask(another)
        sock.sendall(b"held\n")
        assert is_silent(sock)
        proxy.cut()
        assert is_reset(sock, kind == "tcp")
        ask(another)


def test_the_server_is_away(lab):
    """A link without a server ends; the proxy goes on, and ends itself with the test."""
    proxy = ChaosProxy(lab.path("p.sock"), lab.path("nothing.sock")).start()
    for _ in range(3):
        with connect(proxy) as sock:
            assert is_reset(sock, False)
    assert proxy.accepted == 3 and proxy.live() == 0
    proxy.stop()
    assert "chaos-proxy" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)


def test_a_broker_behind_it(lab, redis, key):
    """A lock's whole life passes, and a broker gets over what the proxy does to it."""
    with ChaosProxy(lab.path("p.sock"), redis.path) as proxy:
        daemon = lab.daemon(proxy.url)
        client = daemon.client()
        grant = client.ok("acquire", key=key, ttl_ms=3000)
        proxy.reset_at_request("executed")
        proxy.wait_fired()
        daemon.wait_backend("up")
        assert client.ok("release", key=key, fence=grant["fence"])["outcome"] == "released"
        wait_until(lambda: redis.locks() == [], "the key is gone")
