"""Rows 1, 2, 4, 8 and 9: Redis silent, slow, away, or still loading."""

import os
import socket
import threading
import time

import pytest
import redis as redis_py
from lockbroker import LOCK_PREFIX, assert_error, margin_ms, now_ms, wait_until
from verdicts import assert_definite, assert_nothing_affirmed_after_lost, events

T = 3000  # ms, the ttl of most locks here


def in_background(call, *args):
    """A thread that makes the call; what Redis says against it is of no interest."""
    def run():
        try:
            call(*args)
        except redis_py.RedisError:
            pass
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_row_01_a_short_stop_loses_nothing(redis, daemon, key):
    clients = [daemon.client() for _ in range(3)]
    for n, client in enumerate(clients):
        for m in range(5):
            client.ok("acquire", key=f"{key}-{n}-{m}", ttl_ms=T)
    for _ in range(4):
        redis.sigstop()
        time.sleep(T / 3000 * 0.8)
        redis.sigcont()
        time.sleep(1)
    for n, client in enumerate(clients):
        assert not events(client, "lost")
        for m in range(5):
            assert client.ok("check", key=f"{key}-{n}-{m}")["held"] is True
    assert len(redis.locks()) == 15


def test_row_01_half_a_lease_of_silence_is_suspect_and_then_ok(redis, client, key):
    ttl_ms = 6000
    grant = client.ok("acquire", key=key, ttl_ms=ttl_ms)
    redis.sigstop()
    suspect = client.event("suspect", key=key)
    assert suspect["fence"] == grant["fence"] and suspect["reason"]
    assert suspect["deadline_ms"] >= grant["deadline_ms"]
    assert 0 < suspect["valid_ms"] < ttl_ms * 0.6
    check = client.ok("check", key=key)
    assert check["held"] is True and check["state"] == "suspect"
    redis.sigcont()
    ok = client.event("ok", key=key)
    assert ok["fence"] == grant["fence"] and ok["deadline_ms"] > suspect["deadline_ms"]
    assert client.ok("check", key=key)["state"] == "ok"
    assert not events(client, "lost")
    assert redis.pttl(key) + now_ms() >= ok["deadline_ms"]


def test_row_02_a_stop_longer_than_the_lease_is_told_before_the_deadline(redis, daemon, key):
    clients = [daemon.client() for _ in range(3)]
    for n, client in enumerate(clients):
        for m in range(4):
            client.ok("acquire", key=f"{key}-{n}-{m}", ttl_ms=T)
    time.sleep(T / 2000)  # some renewals
    told = [client.ok("check", key=f"{key}-{n}-0")["deadline_ms"]
            for n, client in enumerate(clients)]
    redis.sigstop()
    for n, client in enumerate(clients):
        for m in range(4):
            lost = client.event("lost", key=f"{key}-{n}-{m}")
            assert lost["reason"] == "expired"
            assert lost.arrived_ms < lost["deadline_ms"]
            assert m or lost["deadline_ms"] >= told[n]
    redis.sigcont()
    daemon.wait_backend("up")
    end = time.monotonic() + T / 1000 + 1
    while time.monotonic() < end:
        for n, client in enumerate(clients):
            assert client.ok("check", key=f"{key}-{n}-0")["held"] is False
        time.sleep(0.1)
    for n, client in enumerate(clients):
        assert len(events(client, "lost")) == 4
        assert_nothing_affirmed_after_lost(client)
        assert client.ok("release", key=f"{key}-{n}-0")["reason"] == "expired"
    wait_until(lambda: redis.locks() == [], "what is left expires", timeout=15)


def test_row_02_every_affirmation_in_the_silence_is_true(redis, client, key):
    client.ok("acquire", key=key, ttl_ms=T)
    redis.sigstop()
    while not events(client, "lost"):
        sent_ms = now_ms()
        reply = client.ok("check", key=key)
        if reply["held"]:
            assert sent_ms <= reply["deadline_ms"] - reply["valid_ms"] <= reply.arrived_ms
            assert reply["valid_ms"] > 0
        time.sleep(0.01)
    assert_nothing_affirmed_after_lost(client)
    assert client.ok("check", key=key)["held"] is False


def test_row_02_a_lost_lock_can_be_had_again(redis, client, key):
    first = client.ok("acquire", key=key, ttl_ms=T)
    redis.sigstop()
    client.event("lost", key=key)
    waiting = client.send("acquire", key=key, ttl_ms=T, wait_ms=-1)
    redis.sigcont()
    second = client.reply(waiting)
    assert second["ok"] is True and second["fence"] > first["fence"]
    time.sleep(T / 1000)
    assert client.ok("check", key=key)["fence"] == second["fence"]


def test_row_02_lost_comes_a_margin_before_the_deadline(redis, client, key):
    for n in range(8):
        client.ok("acquire", key=f"{key}-{n}", ttl_ms=T)
    redis.sigstop()
    late_ms = []
    for n in range(8):
        lost = client.event("lost", key=f"{key}-{n}")
        late_ms.append(lost.arrived_ms - (lost["deadline_ms"] - margin_ms(T)))
    # On a busy machine one or another may be late, but not all of them.
    assert -2 <= min(late_ms) < 100, late_ms


def hold_up(redis, how, seconds):
    """Keeps Redis from answering anybody, from now on."""
    if how == "pause":
        redis.client.execute_command("CLIENT", "PAUSE", int(seconds * 1000), "ALL")
    else:
        own = redis_py.Redis(unix_socket_path=redis.path)
        in_background(own.execute_command, "DEBUG", "SLEEP", seconds)


@pytest.fixture
def patient_redis(lab):
    return lab.redis("--enable-debug-command", "local")


@pytest.mark.parametrize("how", ["pause", "sleep"])
def test_row_04_a_short_hold_up_loses_nothing(lab, patient_redis, key, how):
    client = lab.daemon(patient_redis).client()
    client.ok("acquire", key=key, ttl_ms=T)
    for _ in range(3):
        hold_up(patient_redis, how, T / 4000)
        time.sleep(T / 1500)
    assert client.ok("check", key=key)["held"] is True and not events(client, "lost")
    assert client.ok("release", key=key)["outcome"] == "released"


@pytest.mark.parametrize("how", ["pause", "sleep"])
def test_row_04_a_long_hold_up_is_told_in_time_and_blocks_nothing(lab, patient_redis, key, how):
    daemon = lab.daemon(patient_redis)
    client = daemon.client()
    client.ok("acquire", key=key, ttl_ms=T)
    start_ms = now_ms()
    hold_up(patient_redis, how, T / 1000 * 2)
    assert client.event("suspect", key=key)["valid_ms"] > 0
    sent_ms = now_ms()
    pong = client.ok("ping")
    assert sent_ms <= pong["now_ms"] <= pong.arrived_ms < start_ms + T * 2
    lost = client.event("lost", key=key)
    assert lost["reason"] == "expired" and lost.arrived_ms < lost["deadline_ms"]
    daemon.wait_backend("up")
    assert_nothing_affirmed_after_lost(client)
    assert client.ok("release", key=key)["reason"] == "expired"
    wait_until(lambda: patient_redis.locks() == [], "the key is free")


def test_row_08_redis_down_at_the_start(lab, key):
    redis = lab.new_redis()
    daemon = lab.daemon(redis, up=False)
    daemon.wait_notified("READY=1")
    client = daemon.client()
    assert client.ok("ping")["backend"] == "down"
    start = time.monotonic()
    assert client.fails("unavailable", "acquire", key=key)["reason"] == "down"
    assert time.monotonic() - start < 4
    waiting = client.send("acquire", key=key, wait_ms=-1)
    client.ok("ping")
    redis.start()
    assert client.reply(waiting)["ok"] is True
    assert redis.locks() == [key]


def test_row_08_a_waiters_own_deadline_while_redis_is_down(redis, daemon, client, key):
    redis.kill()
    daemon.wait_backend("down")
    before = now_ms()
    reply = client.fails("unavailable", "acquire", key=key, wait_ms=1500)
    assert reply["reason"] == "down" and reply.arrived_ms - before >= 1500


def test_row_08_a_waiters_deadline_when_redis_went_down_meanwhile(redis, daemon, client, key):
    redis.client.set(LOCK_PREFIX + key, "theirs")
    before = now_ms()
    waiting = client.send("acquire", key=key, wait_ms=2500)
    client.ok("ping")
    redis.kill()
    reply = client.reply(waiting)
    assert_error(reply, "unavailable", reason="down")
    assert reply.arrived_ms - before >= 2500


def test_row_08_a_waiters_deadline_when_redis_is_back(redis, daemon, client, key):
    redis.kill()
    daemon.wait_backend("down")
    waiting = client.send("acquire", key=key, wait_ms=6000)
    redis.start()
    redis.client.set(LOCK_PREFIX + key, "theirs", nx=True)
    reply = client.reply(waiting)
    assert reply["ok"] or reply["error"] == "timeout", reply  # whoever came first


class Refuser:
    """Takes each connection, closes it, and remembers when that was. Those that listen do not count."""

    def __init__(self, path):
        self.times_ms = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                taken, _ = self.listener.accept()
            except OSError:
                return
            taken_ms = now_ms()
            if b"SUBSCRIBE" not in taken.recv(1 << 16):
                self.times_ms.append(taken_ms)
            taken.close()

    def gaps_ms(self, count):
        """Of the first so many attempts."""
        wait_until(lambda: len(self.times_ms) > count, "another attempt", timeout=120)
        return [b - a for a, b in zip(self.times_ms, self.times_ms[1:])][:count]

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def test_row_08_connects_back_off_with_jitter(lab):
    refuser = Refuser(lab.path("r.sock"))
    lab.daemon(f"redis+unix://{lab.path('r.sock')}", up=False)
    gaps_ms = refuser.gaps_ms(13)
    refuser.close()
    for n, gap_ms in enumerate(gaps_ms):  # the pause doubles; up to half of it is left to chance
        assert gap_ms >= min(10 * 2 ** n, 2000) // 2 - 2, gaps_ms
    assert min(gaps_ms[8:]) < 2000 and max(gaps_ms[8:]) - min(gaps_ms[8:]) > 10, gaps_ms


def test_row_08_connects_are_urgent_while_something_is_held(redis, daemon, client, key):
    client.ok("acquire", key=key, ttl_ms=8000)
    redis.kill()
    wait_until(lambda: client.ok("ping")["backend"] == "down", "the link is down")
    redis_socket_free(redis)
    refuser = Refuser(redis.path)
    gaps_ms = refuser.gaps_ms(10)
    refuser.close()
    redis_socket_free(redis)
    assert min(gaps_ms[5:]) <= 260, gaps_ms
    redis.start()
    assert client.event("suspect", key=key)["valid_ms"] > 0


def redis_socket_free(redis):
    try:
        os.unlink(redis.path)
    except FileNotFoundError:
        pass


# Loading.


SLOW_LOAD = ("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")


def assert_waits_for_the_load(redis, client, key):
    """Nothing is granted, and surely not, until Redis has its data."""
    reply = client.fails("unavailable", "acquire", key=key)
    assert_definite(reply)
    waiting = client.send("acquire", key=key, wait_ms=-1)
    assert client.reply(waiting, timeout=60)["ok"] is True


def test_row_09_a_server_that_loads_is_waited_for(lab, key):
    redis = lab.redis("--enable-debug-command", "local")
    daemon = lab.daemon(redis)
    client = daemon.client()
    client.ok("acquire", key=key)
    redis.client.execute_command("DEBUG", "POPULATE", 4000)
    redis.client.save()
    redis.kill()
    redis.args += SLOW_LOAD
    starting = in_background(redis.start)
    daemon.wait_log(event="redis_connect_failed", hint="Redis is still loading its data: wait, the "
                                                       "broker tries again")
    assert_waits_for_the_load(redis, client, key + "2")
    starting.join(60)
    client.event("ok", key=key)
    assert not events(client, "lost") and sorted(redis.locks()) == [key, key + "2"]


def test_row_09_a_command_that_meets_the_load_was_not_executed(lab, key):
    redis = lab.redis("--enable-debug-command", "local", *SLOW_LOAD)
    daemon = lab.daemon(redis)
    client = daemon.client()
    client.ok("acquire", key=key)
    redis.client.execute_command("DEBUG", "POPULATE", 3000)
    reloading = in_background(redis_py.Redis(unix_socket_path=redis.path).execute_command,
                              "DEBUG", "RELOAD")
    wait_until(lambda: is_loading(redis), "Redis loads")
    assert_waits_for_the_load(redis, client, key + "2")
    reloading.join(60)
    assert daemon.log_lines(event="redis_refused", code="LOADING")
    assert client.ok("release", key=key)["outcome"] == "released"
    assert redis.locks() == [key + "2"]


def is_loading(redis):
    try:
        redis.client.get("x")
        return False
    except redis_py.exceptions.BusyLoadingError:
        return True
