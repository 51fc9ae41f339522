"""Rows 45 to 48, 50 and 60: the broker stopped, killed, drained, misled, doubled, signalled."""

import os
import resource
import signal
import time

import pytest
from lockbroker import LOCK_PREFIX, Client, assert_error, connect, now_ms, wait_until
from verdicts import assert_nothing_affirmed_after_lost, events

T = 3000  # ms, the ttl of most locks here


@pytest.mark.parametrize("renew", [True, False])
def test_row_45_the_first_word_after_a_stop_of_the_broker_is_lost(redis, daemon, key, renew):
    clients = [daemon.client() for _ in range(4)]
    grants = [c.ok("acquire", key=f"{key}-{n}", ttl_ms=T, renew=renew)
              for n, c in enumerate(clients)]
    daemon.sigstop()
    marks = [len(client.received) for client in clients]
    for n, client in enumerate(clients):
        client.send("check", key=f"{key}-{n}", id="check")
        client.send("extend", key=f"{key}-{n}", id="extend")
    # The locks move on meanwhile.
    for n in range(4):
        wait_until(lambda name=LOCK_PREFIX + f"{key}-{n}":
                   redis.client.set(name, "theirs", nx=True), "the key expires", timeout=10)
        assert now_ms() >= grants[n]["deadline_ms"], "by its clock the client has stopped before"
    assert now_ms() > max(grant["deadline_ms"] for grant in grants)
    daemon.sigcont()
    for n, client in enumerate(clients):
        assert client.reply("check")["held"] is False
        assert_error(client.reply("extend"), "not_held")
        first = client.received[marks[n]]
        assert first["event"] == "lost" and first["fence"] == grants[n]["fence"], first
        assert first["reason"] == ("expired" if renew else "not_renewed")
        assert_nothing_affirmed_after_lost(client)
        assert redis.value(f"{key}-{n}") == "theirs"


def test_row_45_a_short_stop_of_the_broker_loses_nothing(redis, daemon, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    for _ in range(3):
        daemon.sigstop()
        time.sleep(T / 3000)
        daemon.sigcont()
        time.sleep(T / 3000)
    assert client.ok("check", key=key)["held"] is True and not events(client, "lost")


def test_row_46_a_killed_broker_frees_nothing_early(redis, daemon, client, key):
    grant = client.ok("acquire", key=key, ttl_ms=3000)
    daemon.kill()
    client.expect_eof()
    daemon.start()
    other = daemon.client()
    assert other.fails("busy", "acquire", key=key)["holder"]["kind"] == "broker"
    second = other.ok("acquire", key=key, wait_ms=-1)
    assert second.arrived_ms >= grant["deadline_ms"] and second["fence"] > grant["fence"]


def test_row_46_a_client_of_a_killed_broker_sees_the_end(daemon, client, key):
    client.ok("acquire", key=key)
    daemon.kill()
    client.expect_eof()


def test_row_47_sigterm_with_nothing_held_ends_at_once(daemon, client, key):
    client.ok("acquire", key=key)
    client.ok("release", key=key)
    start = time.monotonic()
    daemon.sigterm()
    assert daemon.wait_exit() == 0
    assert time.monotonic() - start < 3
    client.expect_eof()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_row_47_drain_waits_for_the_holders_word(redis, daemon, client, key, number):
    waiter = daemon.client()
    grant = client.ok("acquire", key=key)
    waiting = waiter.send("acquire", key=key, wait_ms=-1)
    waiter.ok("ping")
    daemon.process.signal(number)
    daemon.wait_notified("STOPPING=1")
    lost = client.event("lost", key=key)
    assert lost["reason"] == "shutdown" and lost["deadline_ms"] >= grant["deadline_ms"]
    assert_error(waiter.reply(waiting), "draining")
    client.fails("draining", "acquire", key=key + "2")
    assert redis.locks() == [key] and daemon.process.is_running()
    assert client.ok("check", key=key)["held"] is False
    assert client.ok("release", key=key)["reason"] == "shutdown"
    assert daemon.wait_exit() == 0
    assert redis.locks() == []


def test_row_47_drain_ends_with_the_holders(redis, daemon, key):
    clients = [daemon.process_client() for _ in range(3)]
    for n, client in enumerate(clients):
        client.ok("acquire", key=f"{key}-{n}")
    daemon.sigterm()
    for client in clients:
        client.event("lost")
    assert len(redis.locks()) == 3
    for client in clients:
        client.kill()
    assert daemon.wait_exit(5) == 0
    assert redis.locks() == []


def test_row_47_nobody_new_is_granted_in_a_drain(redis, daemon, client, key):
    client.ok("acquire", key=key)
    daemon.sigterm()
    client.event("lost")
    try:
        late = daemon.client()
    except (ConnectionRefusedError, FileNotFoundError):
        pass
    else:
        late.send("acquire", key=key + "2")
        wait_until(lambda: late.received or late.eof_ms, "an answer or the end")
        assert all(m["error"] == "draining" for m in late.received)
    assert redis.locks() == [key]


def test_row_47_drain_leaves_what_is_still_held_after_four_seconds(redis, daemon, client, key):
    grants = [client.ok("acquire", key=f"{key}-{n}") for n in range(3)]
    start = time.monotonic()
    daemon.sigterm()
    assert daemon.wait_exit() == 0
    took = time.monotonic() - start
    assert 3.5 < took < 5.5, "four seconds of grace, gone within five (and a busy machine)"
    assert len(redis.locks()) == 3
    assert all(now_ms() + redis.pttl(g["key"]) >= g["deadline_ms"] for g in grants)
    assert daemon.log_lines(count=3)


@pytest.mark.parametrize("fault", ["sigstop", "kill"])
@pytest.mark.parametrize("releases", [True, False])
def test_row_47_drain_while_redis_is_down(redis, daemon, client, key, fault, releases):
    client.ok("acquire", key=key)
    getattr(redis, fault)()
    start = time.monotonic()
    daemon.sigterm()
    assert client.event("lost", key=key)["reason"] == "shutdown"
    if releases:
        client.send("release", key=key)
    assert daemon.wait_exit() == 0
    assert time.monotonic() - start < 5.5


@pytest.mark.parametrize("fault", ["sigstop", "kill"])
def test_row_47_drain_with_nothing_held_while_redis_is_down(redis, daemon, fault):
    getattr(redis, fault)()
    start = time.monotonic()
    daemon.sigterm()
    assert daemon.wait_exit() == 0
    assert time.monotonic() - start < 3


def test_row_50_a_second_daemon_on_the_same_path_refuses_to_start(lab, daemon, client, key):
    client.ok("acquire", key=key)
    second = lab.new_daemon("memory://", socket_path=daemon.socket_path).launch()
    assert second.wait_exit() != 0
    assert daemon.socket_path in second.log()
    assert client.ok("check", key=key)["held"] is True
    daemon.client().ok("ping")


def test_row_50_the_socket_of_a_dead_daemon_is_taken_over(lab):
    daemon = lab.daemon("memory://")
    daemon.kill()
    assert os.path.exists(daemon.socket_path)
    daemon.start()
    daemon.client().ok("ping")


# A configuration that is of no use.


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def remove(path):
    os.unlink(path)


def make_a_folder(path):
    os.unlink(path)
    os.mkdir(path)


BAD_CONFIGS = {
    "bad_value": lambda path: write(path, "[lockbroker]\nttl_max = 5\n"),
    "unknown_option": lambda path: write(path, "[lockbroker]\nttl_max = 5s\nnonsense = 1\n"),
    "no_equals_sign": lambda path: write(path, "[lockbroker]\nttl_max 5s\n"),
    "cut_off": lambda path: write(path, "[lockbroker]\nttl_max = 5s\nmax_w"),
    "empty": lambda path: write(path, ""),
    "missing": remove,
    "unreadable": make_a_folder,
}


def policy(client):
    return client.ok("hello", client="asks")["limits"]["ttl_max_ms"]


@pytest.mark.parametrize("harm", BAD_CONFIGS)
def test_row_48_a_bad_config_changes_nothing(lab, redis, harm, key):
    config = lab.path("broker.conf")
    write(config, "[lockbroker]\nttl_max = 10s\n")
    daemon = lab.daemon(redis, config=config)
    client = daemon.client()
    client.ok("acquire", key=key, ttl_ms=8000)
    BAD_CONFIGS[harm](config)
    daemon.process.signal(signal.SIGHUP)
    told = daemon.wait_log(event="reload_failed")
    assert len(told) == 1 and told[0].startswith("<3>") and config in told[0]
    assert policy(daemon.client()) == 10000
    assert client.ok("check", key=key)["held"] is True


def test_row_48_a_good_config_that_cannot_be_opened_changes_nothing(lab, redis, key):
    config = lab.path("broker.conf")
    write(config, "[lockbroker]\nttl_max = 10s\n")
    daemon = lab.daemon(redis, config=config)
    client = daemon.client()
    client.ok("acquire", key=key, ttl_ms=8000)
    write(config, "[lockbroker]\nttl_max = 20s\n")
    pid = daemon.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 1, limits[1]))
    # One signal: a second, still pending when the limit is back, would be a reload that works.
    daemon.process.signal(signal.SIGHUP)
    daemon.wait_log(event="reload_failed")
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    assert client.fails("bad_field", "acquire", key=key + "2", ttl_ms=20000)["field"] == "ttl_ms"
    assert client.ok("check", key=key)["held"] is True
    daemon.process.signal(signal.SIGHUP)
    wait_until(lambda: client.request("acquire", key=key + "2", ttl_ms=20000)["ok"],
               "the new limit")


# A storm of signals.


def test_row_60_a_storm_of_signals_has_no_effect(redis, daemon, client, key):
    grant = client.ok("acquire", key=key, ttl_ms=T)
    other = daemon.client()
    end = time.monotonic() + 4
    rounds = 0
    while time.monotonic() < end:
        for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGWINCH, signal.SIGURG,
                       signal.SIGCONT, signal.SIGHUP) * 20:
            daemon.process.signal(number)
        other.ok("acquire", key=f"{key}-{rounds}")
        assert other.ok("release", key=f"{key}-{rounds}")["outcome"] == "released"
        rounds += 1
    check = client.ok("check", key=key)
    assert check["held"] is True and check["fence"] == grant["fence"]
    assert check["state"] == "ok" and not events(client, "lost")
    assert redis.locks() == [key]


def test_row_60_peers_that_close_while_they_are_written_to(redis, daemon, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    for _ in range(200):
        peer = Client(connect(daemon.socket_path), reading=False)
        peer.send_raw(b'{"id":1,"op":"stats"}\n{"id":2,"op":"list"}\n' * 20)
        peer.close()
    assert client.ok("check", key=key)["held"] is True and daemon.process.is_running()
