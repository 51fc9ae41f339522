"""What the daemon finds at its start, is told while it runs, and does at its end."""

import os
import resource
import signal
import subprocess

from lockbroker import connect, daemon_path, wait_until


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def test_an_argument_too_many_is_refused():
    refused = subprocess.run([daemon_path(), "--check-config", "nonsense"], capture_output=True,
                             text=True, check=False, timeout=30)
    assert refused.returncode == 2
    assert "unexpected argument 'nonsense'" in refused.stderr and "--help" in refused.stderr


def test_a_place_where_memory_cannot_keep_its_time_is_told(lab):
    daemon = lab.new_daemon("memory://")
    os.mkdir(daemon.socket_path + ".memory")
    daemon.launch()
    assert daemon.wait_exit() == 1
    assert any(daemon.socket_path + ".memory" in line and "memory://" in line
               for line in daemon.log_lines(event="start_failed"))
    assert not os.path.exists(daemon.socket_path)


def descriptors(soft, hard):
    """For a process that may have so many."""
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))}


def is_served(daemon):
    """Whether a new connection is not one too many."""
    with connect(daemon.socket_path) as sock:
        try:
            sock.sendall(b'{"id":1,"op":"ping"}\n')
            return b'"ok":true' in sock.recv(4096)
        except (BrokenPipeError, ConnectionResetError):
            return False


def test_connections_max_is_lowered_to_what_the_descriptors_allow(lab):
    daemon = lab.new_daemon("memory://")
    daemon.popen_options = descriptors(70, 70)
    daemon.start()
    told = daemon.wait_log(event="connections_lowered")
    assert "lowered to 6," in told[0]
    wait_until(lambda: is_served(daemon), "the connections of the start are gone")
    clients = [daemon.client() for _ in range(6)]
    assert all(client.ok("ping") for client in clients)
    assert not is_served(daemon)
    assert clients[0].ok("stats")["counters"]["connections_refused"] >= 1
    clients[0].close()
    wait_until(lambda: is_served(daemon), "there is room again")


def test_as_many_descriptors_as_allowed_are_taken(lab):
    daemon = lab.new_daemon("memory://", connections_max=100)
    daemon.popen_options = descriptors(20, 1000)
    daemon.start()
    clients = [daemon.client() for _ in range(90)]
    assert all(client.ok("ping") for client in clients)
    assert not daemon.log_lines(event="connections_lowered")


def test_hardly_any_descriptors_are_one_connection(lab):
    daemon = lab.new_daemon("memory://")
    daemon.popen_options = descriptors(30, 30)
    daemon.start(up=False)
    assert "lowered to 1," in daemon.wait_log(event="connections_lowered")[0]
    wait_until(lambda: is_served(daemon), "the one connection")


def test_a_reload_names_what_needs_a_restart(lab):
    config = write(lab.path("broker.conf"), "ttl_max = 10s\n")
    daemon = lab.daemon("memory://", config=config)
    write(config, "ttl_max = 11s\nprefix = other:\n")
    daemon.process.signal(signal.SIGHUP)
    daemon.wait_notified("READY=1")
    daemon.wait_notified("RELOADING=1")
    ignored = daemon.wait_log(event="reload_ignored")
    assert len(ignored) == 1 and "prefix can only be changed by a restart" in ignored[0]
    client = daemon.client()
    wait_until(lambda: client.ok("hello")["limits"]["ttl_max_ms"] == 11000, "the rest is in force")


def test_the_watchdog_is_fed(lab, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    daemon = lab.daemon("memory://")
    for _ in range(5):
        daemon.wait_notified("WATCHDOG=1")
    daemon.sigterm()
    assert daemon.wait_exit() == 0


def test_the_first_signal_to_end_counts(lab, key):
    redis = lab.redis()
    daemon = lab.daemon(redis)
    client = daemon.client()
    client.ok("acquire", key=key)
    for number in [signal.SIGTERM, signal.SIGTERM, signal.SIGINT]:
        daemon.process.signal(number)
    assert client.event("lost")["key"] == key
    client.fails("draining", "acquire", key=key + "2")
    # It answers still, so all three have come by now.
    assert len(daemon.log_lines(event="drain")) == 1
    client.ok("release", key=key)
    assert daemon.wait_exit() == 0
    assert redis.value(key) is None


def test_a_name_that_is_being_looked_up_does_not_hold_up_the_end(lab):
    daemon = lab.new_daemon("redis://a-host-that-is-not.invalid:1/0").start(up=False)
    connect(daemon.socket_path).close()
    daemon.sigterm()
    assert daemon.wait_exit() == 0
    assert not os.path.exists(daemon.socket_path)
