"""The daemon as a service: its socket, its start and reload, its log, and the table in its process."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys

import pytest
from lockbroker import LOCK_PREFIX, assert_error, connect, daemon_path, wait_until


# The socket.


def test_the_socket_is_removed_at_the_end(lab):
    daemon = lab.daemon("memory://")
    daemon.sigterm()
    assert daemon.wait_exit() == 0
    assert not os.path.exists(daemon.socket_path)


def test_another_kind_of_file_is_not_replaced(lab):
    path = lab.path("precious")
    with open(path, "w", encoding="utf-8") as precious:
        precious.write("data")
    assert lab.new_daemon("memory://", socket_path=path).launch().wait_exit() != 0
    with open(path, encoding="utf-8") as precious:
        assert precious.read() == "data"


def test_a_path_too_long_for_a_socket_is_refused(lab):
    directory = lab.path("d" * 100)
    os.mkdir(directory)
    assert lab.new_daemon("memory://", socket_path=directory + "/s").launch().wait_exit() != 0
    assert os.listdir(directory) == []


def test_a_place_where_no_socket_can_be_is_told_with_a_way_out(lab):
    missing = lab.new_daemon("memory://", socket_path=lab.path("missing/s")).launch()
    assert missing.wait_exit() == 1
    assert f"there is no directory {lab.path('missing')}" in missing.log()
    assert "--socket" in missing.log() and ".lock" not in missing.log()
    os.symlink("/nonexistent", lab.path("s.lock"))
    refused = lab.new_daemon("memory://", socket_path=lab.path("s")).launch()
    assert refused.wait_exit() == 1
    assert f"cannot create the socket {lab.path('s')}" in refused.log()
    assert "--socket" in refused.log()


def test_the_mode_of_the_socket(lab):
    daemon = lab.daemon("memory://", socket_mode="0600")
    assert stat.S_IMODE(os.stat(daemon.socket_path).st_mode) == 0o600


# Runs a command as a service manager does that listens for it: the socket is descriptor 3.
ACTIVATE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_a_socket_may_be_inherited(lab):
    daemon = lab.new_daemon("memory://")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(daemon.socket_path)
        listener.listen()
        daemon.argv = [sys.executable, "-c", ACTIVATE, str(listener.fileno())] + daemon.argv
        daemon.popen_options = {"pass_fds": [listener.fileno()]}
        daemon.launch()
    daemon.wait_notified("READY=1")
    daemon.client().ok("ping")
    daemon.sigterm()
    assert daemon.wait_exit() == 0
    assert os.path.exists(daemon.socket_path), "it belongs to the service manager"


# Start and reload.


def test_ready_and_stopping_are_notified(lab):
    daemon = lab.new_daemon("memory://").launch()
    daemon.wait_notified("READY=1")
    connect(daemon.socket_path).close()
    daemon.sigterm()
    daemon.wait_notified("STOPPING=1")


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write("[lockbroker]\n" + text)
    return path


def test_reload(lab, key):
    config = write(lab.path("broker.conf"), "ttl_max = 10s\n")
    daemon = lab.daemon("memory://", config=config)
    client = daemon.client()
    client.ok("acquire", key=key, ttl_ms=8000)
    assert client.fails("bad_field", "acquire", key="x", ttl_ms=20000)["field"] == "ttl_ms"

    write(config, "ttl_max = 20s\n")
    daemon.process.signal(signal.SIGHUP)
    daemon.wait_notified("RELOADING=1")
    daemon.wait_notified("READY=1")
    wait_until(lambda: client.request("acquire", key="x", ttl_ms=20000)["ok"], "the new limit")

    for bad in ["ttl_max = 5\n", "ttl_max = 5s\nnonsense = 1\n", "ttl_max 5s\n"]:
        write(config, bad)
        daemon.process.signal(signal.SIGHUP)
        daemon.wait_notified("READY=1")
        assert client.request("acquire", key=f"{key}-{len(bad)}", ttl_ms=20000)["ok"]
    assert "nonsense" in daemon.log() and config in daemon.log()
    assert client.ok("check", key=key)["held"] is True


def test_a_bad_option_is_named(lab):
    config = write(lab.path("broker.conf"), "# fine\nttl_max = soon\n")
    daemon = lab.new_daemon("memory://", config=config).launch()
    assert daemon.wait_exit() != 0
    assert config + ":3" in daemon.log() and "ttl_max" in daemon.log()


def test_set_wins_over_the_file_and_flags_over_both(lab):
    config = write(lab.path("broker.conf"), "ttl_max = 10s\nbackend = redis://127.0.0.1:1/0\n")
    daemon = lab.daemon("memory://", config=config, ttl_max="7s")
    assert daemon.client().ok("hello")["limits"]["ttl_max_ms"] == 7000


def run(*args):
    return subprocess.run([daemon_path(), *args], capture_output=True, text=True, check=False,
                          timeout=30)


def test_command_line(lab):
    good = write(lab.path("good.conf"), "ttl_max = 10s\n")
    bad = write(lab.path("bad.conf"), "ttl_maxx = 10s\n")
    assert run("--version").returncode == 0 and "lockbrokerd" in run("--version").stdout
    assert run("--help").returncode == 0 and "--backend" in run("--help").stdout
    assert run("--config", good, "--check-config").returncode == 0
    refused = run("--config", bad, "--check-config")
    assert refused.returncode != 0 and "ttl_maxx" in refused.stderr
    assert run("--set", " ttl_max = 5s ", "--check-config").returncode == 0
    refused = run("--set", "ttl-max=5s", "--check-config")
    assert refused.returncode == 2 and "did you mean ttl_max?" in refused.stderr
    printed = run("--config", good, "--set", "max_wait=5s", "--print-config")
    assert printed.returncode == 0
    for option in ["ttl_max", "max_wait", "prefix", "backend", "socket"]:
        assert option in printed.stdout
    with open(good, "w", encoding="utf-8") as file:
        file.write(printed.stdout)
    assert run("--config", good, "--print-config").stdout == printed.stdout
    assert run("--nonsense").returncode != 0
    assert run("--backend", "gopher://x", "--check-config").returncode != 0


@pytest.mark.parametrize("option,value,what", [
    ("backend_password_file", "/nonexistent", "/nonexistent: the file cannot be opened"),
    ("socket_group", "no-such-group", 'there is no group "no-such-group"')])
def test_what_an_option_points_to_is_checked_and_the_option_named(lab, option, value, what):
    arguments = ["--socket", lab.path("s"), "--set", f"{option}={value}"]
    for refused in [run(*arguments, "--check-config"), run(*arguments)]:
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"lockbrokerd: {option}: {what}"), refused.stderr


# The log.


def test_log_lines_are_one_line_each(daemon, client, key):
    client.ok("hello", client='evil\n<0>event=forged "quoted" \x1b[31m\u202e')
    client.ok("acquire", key=key, note="note\n<0>event=forged")
    client.ok("release", key=key, status="bye\n<0>event=forged")
    daemon.client().ok("break", key=key, reason="r\n<0>event=forged")
    for line in daemon.log().splitlines():
        assert not line.startswith("<0>") and line.isascii() and line.isprintable(), line


# memory://


def test_memory_says_so_at_the_start(lab):
    daemon = lab.daemon("memory://")
    assert len([line for line in daemon.log().splitlines() if "memory" in line]) >= 1
    assert daemon.client().ok("stats")["backend"]["kind"] == "memory"


def test_memory_grants_nothing_after_a_crash_before_the_old_deadlines(lab, key):
    daemon = lab.daemon("memory://")
    holder = daemon.client()
    grant = holder.ok("acquire", key=key, ttl_ms=4000)
    daemon.kill()
    daemon.start()
    client = daemon.client()
    refused = client.fails("unavailable", "acquire", key=key)
    assert refused["reason"] == "quarantine" and 0 < refused["ends_in_ms"] <= 4000
    second = client.ok("acquire", key=key, wait_ms=-1)
    assert second.arrived_ms >= grant["deadline_ms"] and second["fence"] > grant["fence"]


def test_memory_grants_at_once_after_a_clean_end(lab, key):
    daemon = lab.daemon("memory://")
    client = daemon.client()
    client.ok("acquire", key=key)
    client.ok("release", key=key)
    daemon.stop()
    daemon.start()
    daemon.client().ok("acquire", key=key)


def test_memory_holds_renews_and_loses_like_redis(lab, key):
    daemon = lab.daemon("memory://")
    client, other = daemon.client(), daemon.client()
    client.ok("acquire", key=key, ttl_ms=1000)
    other.fails("timeout", "acquire", key=key, wait_ms=3000)
    assert client.ok("check", key=key)["held"] is True
    client.ok("acquire", key=key + "2", ttl_ms=1000, renew=False)
    assert client.event("lost")["reason"] == "not_renewed"
    client.ok("acquire", key=key + "3", ttl_ms=2000, max_hold_ms=1500)
    assert client.event("lost")["reason"] == "max_hold"
    waiting = other.send("acquire", key=key, wait_ms=-1)
    client.close()
    assert other.reply(waiting)["ok"] is True


# Redis behind a name, a password, another database.


def loopback_name():
    """A name for 127.0.0.1, where the machine has one."""
    try:
        socket.getaddrinfo("localhost", None, socket.AF_INET)
        return "localhost"
    except socket.gaierror:
        return "127.0.0.1"


def test_tcp_password_and_database(lab, key):
    redis = lab.redis(tcp=True, password="s3cret-word")
    daemon = lab.daemon(f"redis://:s3cret-word@{loopback_name()}:{redis.port}/5")
    daemon.client().ok("acquire", key=key)
    assert redis.client.get(LOCK_PREFIX + key) is None
    assert key in redis_database(redis, 5)
    assert "s3cret" not in daemon.log()


def redis_database(redis, number):
    """The lock keys in another database of the server."""
    pipe = redis.client.pipeline(transaction=True)
    pipe.execute_command("SELECT", number)
    pipe.keys(LOCK_PREFIX + "*")
    pipe.execute_command("SELECT", 0)
    return [key[len(LOCK_PREFIX):] for key in pipe.execute()[1]]


def test_acl_user(lab, key):
    redis = lab.redis(tcp=True)
    redis.client.execute_command("ACL", "SETUSER", "app", "on", ">app-word", "~lockbroker:*",
                                 "&lockbroker:*", "+@all", "-@dangerous", "+info", "+role",
                                 "+config|get")
    redis.client.execute_command("ACL", "SETUSER", "default", "off")
    redis.client.connection_pool.disconnect()
    daemon = lab.daemon(f"redis://app:app-word@127.0.0.1:{redis.port}/0")
    client = daemon.client()
    client.ok("acquire", key=key, ttl_ms=1000)
    client.ok("release", key=key)
    assert "app-word" not in daemon.log()


def test_wrong_password(lab, key):
    redis = lab.redis(tcp=True, password="right-word")
    daemon = lab.daemon(f"redis://:wrong-word@127.0.0.1:{redis.port}/0", up=False)
    client = daemon.client()
    assert client.ok("ping")["backend"] == "down"
    assert_error(client.request("acquire", key=key), "unavailable")
    wait_until(lambda: "WRONGPASS" in daemon.log() or "NOAUTH" in daemon.log(), "the log says why")
    assert "wrong-word" not in daemon.log()
    assert " hint=" in line(daemon, "redis_connect_failed")
    redis.client.config_set("requirepass", "wrong-word")
    daemon.wait_backend("up")
    client.ok("acquire", key=key)


def line(daemon, event):
    """The first log line of that event."""
    return wait_until(lambda: next((text for text in daemon.log().splitlines()
                                    if f"event={event} " in text), None), event)


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
        return True
    except OSError:
        return False


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_the_log_names_address_and_port(lab, host):
    if host == "[::1]" and not has_ipv6():
        pytest.skip("no IPv6 here")
    redis = lab.new_redis("--bind", "127.0.0.1", "-::1", tcp=True)
    daemon = lab.daemon(f"redis://{host}:{redis.port}/0", up=False)
    address = f" address={host}:{redis.port} "
    assert address in line(daemon, "redis_connect_failed")
    redis.start()
    daemon.wait_backend("up")
    assert address in line(daemon, "redis_up")
    redis.kill()
    assert address in line(daemon, "redis_down")


def test_a_connection_that_hangs_may_be_a_firewalls_doing(lab):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        waiting = [socket.socket() for _ in range(3)]  # the kernel drops what is more
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(address)
        daemon = lab.daemon(f"redis://127.0.0.1:{address[1]}/0", up=False, connect_timeout="200ms")
        told = line(daemon, "redis_connect_failed")
        assert "no connection in time" in told and "firewall" in told
        for sock in waiting:
            sock.close()


def test_a_greeting_that_does_not_come_is_no_firewalls_doing(lab, redis):
    redis.sigstop()
    daemon = lab.daemon(redis, up=False, connect_timeout="200ms")
    told = line(daemon, "redis_connect_failed")
    assert "no greeting in time" in told and " hint=" in told and "firewall" not in told


def eviction_warnings(daemon):
    lines = [line for line in daemon.log().splitlines() if "redis_may_evict_locks" in line]
    assert all(line.startswith("<4>") and "maxmemory-policy noeviction" in line for line in lines)
    return lines


@pytest.mark.parametrize("maxmemory", ["0", "100mb"])
@pytest.mark.parametrize("policy,evicts", [("allkeys-lru", True), ("volatile-ttl", True),
                                           ("noeviction", False)])
def test_a_policy_that_may_evict_locks_is_warned_of(lab, policy, evicts, maxmemory):
    redis = lab.redis("--maxmemory", maxmemory, "--maxmemory-policy", policy)
    daemon = lab.daemon(redis)
    backend = daemon.client().ok("stats")["backend"]
    assert backend["maxmemory_policy"] == policy and backend["may_evict"] is evicts
    assert len(eviction_warnings(daemon)) == (1 if evicts else 0)


def test_one_warning_for_each_change_of_the_policy(lab):
    redis = lab.redis("--maxmemory-policy", "allkeys-lru")
    daemon = lab.daemon(redis)

    def warnings_after_reconnect(ups):
        redis.client.client_kill_filter(_id=redis.broker_links()[0]["id"])
        wait_until(lambda: daemon.log().count("event=redis_up ") == ups, "the link is up again")
        return len(eviction_warnings(daemon))

    assert warnings_after_reconnect(2) == 1
    redis.client.config_set("maxmemory-policy", "volatile-lru")
    assert warnings_after_reconnect(3) == 2
    redis.client.config_set("maxmemory", "100mb")
    assert warnings_after_reconnect(4) == 2
    redis.client.config_set("maxmemory-policy", "noeviction")
    assert warnings_after_reconnect(5) == 2
    redis.client.config_set("maxmemory-policy", "volatile-lru")
    assert warnings_after_reconnect(6) == 3


# The service manager.


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
def test_the_unit_in_the_man_page_is_a_good_one(lab):
    page = os.path.join(os.path.dirname(__file__), "..", "..", "daemon", "lockbrokerd.8.scd")
    with open(page, encoding="utf-8") as text:
        unit = next(block for block in text.read().split("```") if "[Service]" in block)
    unit = unit.replace("/usr/local/sbin/lockbrokerd", daemon_path())
    assert f"ExecStart={daemon_path()}" in unit
    path = lab.path("lockbrokerd.service")
    with open(path, "w", encoding="utf-8") as file:
        file.write(unit)
    outcome = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True,
                             text=True, check=False, timeout=60)
    assert outcome.returncode == 0 and path not in outcome.stderr, outcome.stderr
