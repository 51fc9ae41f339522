"""Row 52: no memory for any one allocation of the daemon, at each place that asks for some.

A shim (shim.c) makes the n-th request for memory fail, for n = 1, 2, 3 and so on, until
a run of the scenario needs fewer. What libuv, hiredis and the C library ask for counts as well.
A failing one may cost one request or one connection; afterwards all locks can be had again.

A run is not the same each time, since replies may come together or apart. So stacks of calls are
remembered, and one that was seen but did not fail in its turn is failed by name at the end.
"""

import itertools
import os
import re
import threading
import time

import pytest

from fault_shim import ALLOC_COUNT, ALLOC_NUMBER, ALLOC_SITE, Shim
from lockbroker import DEFECT, LOCK_PREFIX, PATIENCE, wait_until

T = 5000  # ms, the ttl of most locks here
T_SHORT = 1500  # of those that a test waits to be renewed
WORKERS = 4
RUNS_MAX = 2000  # far more than any scenario needs
SITE_TRIES = 6
START_FAILED = 1  # the exit code
CROWD = 24  # connections
BURST = 450  # requests
FLAWS_MAX = 6  # 4 are known


class Spoiled(Exception):
    """The scenario cannot go on as planned, since an allocation failed."""


class Party:
    """A client that bears the loss of a reply or of its connection, and keeps the bill."""

    def __init__(self, daemon):
        self.client = daemon.client()
        self.keys = set()  # that it may hold
        self.pending = {}  # its requests that are not answered, by id
        self.refusals = []  # of its requests; None for one that was granted
        self.has_ended = False  # by itself

    @property
    def was_cut(self):
        return self.client.eof_ms is not None and not self.has_ended

    def send(self, op, **fields):
        if self.was_cut:
            raise Spoiled
        if "key" in fields:
            self.keys.add(fields["key"])
        try:
            request = self.client.send(op, **fields)
        except OSError:
            self.client.expect_eof()
            raise Spoiled from None
        self.pending[request] = op
        return request

    def _answer(self, request):
        """The reply to it, or the one to a line that could not even be read for want of memory."""
        for message in self.client.untaken():
            if message.get("id", "") == request or (
                    message.get("id", "") is None and message["error"] == "quota"):
                return message
        return None

    def reply(self, request):
        """Its reply; None when the connection ends before it."""
        reply = None
        end = time.monotonic() + PATIENCE
        while not reply and not self.was_cut:
            assert time.monotonic() < end, f"no reply to {request!r}: {self.client.received}"
            time.sleep(0.0002)  # thousands of requests: not as long as wait_until() would
            reply = self._answer(request)
        if not reply:
            return None
        reply.taken = True
        self.pending.pop(request, None)
        assert reply.get("error") != "internal", reply
        self.refusals.append(reply.get("error"))
        return reply

    def take(self, request, error=None):
        """The reply that the scenario needs: an ok, or that error."""
        reply = self.reply(request)
        if reply is None or reply.get("error") != error:
            raise Spoiled(reply)
        return reply

    def ask(self, op, error=None, **fields):
        return self.take(self.send(op, **fields), error)

    def say(self, line, request=None):
        """A line made by hand, or a piece of one."""
        if self.was_cut:
            raise Spoiled
        try:
            self.client.send_raw(line)
        except OSError:
            raise Spoiled from None
        if request is not None:
            self.pending[request] = "?"

    def lost(self, reason):
        """Whether it has been told of a loss for that reason."""
        return self.client.has(event="lost", reason=reason)

    def end(self):
        self.has_ended = True
        self.client.close()

    def settle(self):
        """Memory is there again: whatever it still waits for is called off, and answered."""
        if self.has_ended:
            return
        try:
            for request, op in list(self.pending.items()):
                if op == "acquire":
                    self.reply(self.send("cancel", target=request))
            for request in list(self.pending):
                self.reply(request)
            for key in self.keys:
                self.reply(self.send("release", key=key))
        except Spoiled:
            pass
        assert self.was_cut or not self.pending, self.pending


class Stage:
    """A daemon under the shim, with a Redis of its own, on which a scenario is run many times."""

    def __init__(self, lab, redis=None):
        self.redis = redis or lab.redis()
        self.link = self.redis.path + ".link"
        self.daemon = self.make_daemon(lab)
        self.shim = Shim(self.daemon)
        self.parties = []
        self.kept = set()  # keys of holders that were cut off: not free at once
        self.told = 0  # bytes of the log that were looked at
        self.was_link_cut = False  # by the scenario
        self.timer = None  # of an outage
        self.outage = 0  # for how many seconds nobody gets memory; 0: only one allocation fails

    def make_daemon(self, lab):
        os.symlink(self.redis.path, self.link)
        return lab.new_daemon("redis+unix://" + self.link)

    def party(self):
        party = Party(self.daemon)
        self.parties.append(party)
        return party

    def cut_link(self):
        """Redis ends the daemon's connection, and until further notice takes no new one."""
        os.rename(self.link, self.link + ".away")
        self.break_link()

    def break_link(self):
        self.was_link_cut = True
        for link in self.redis.broker_links():
            self.redis.client.client_kill_filter(_id=link["id"])

    def mend_link(self):
        if os.path.lexists(self.link + ".away"):
            os.rename(self.link + ".away", self.link)

    def wait_renewed(self, keys, party):
        """Each of these keys of the party's is renewed once."""
        before = {key: self.redis.pttl(key) for key in keys}

        def is_over():
            for key in list(before):
                left = self.redis.pttl(key)
                if left > before[key]:
                    del before[key]
                else:
                    before[key] = left
            return not before or party.was_cut or any(
                party.client.has(event="lost", key=key) for key in keys)
        wait_until(is_over, "a renewal")

    def news(self):
        """What the daemon has logged since the last call."""
        with open(self.daemon.log_path, "a+", encoding="utf-8", errors="replace") as file:
            file.seek(0)
            log = file.read()
        news, self.told = log[self.told:], len(log)
        return news

    def prepare(self, mode, at):
        if not self.daemon.process:
            self.daemon.start()
        self.shim.arm(mode, at)
        if mode == ALLOC_NUMBER and self.outage:
            self.shim.set(alloc_forever=1)
            self.timer = threading.Timer(self.outage, self.shim.disarm)
            self.timer.start()

    def run(self, scenario, number, mode, at):
        """One run. Returns whether an allocation failed in it."""
        keys = [f"{number}-{i}" for i in range(6)]
        self.parties = []
        self.was_link_cut = False
        self.prepare(mode, at)
        spoiled = None
        try:
            scenario(self, keys)
        except Spoiled as error:
            spoiled = error
        finally:
            if self.timer:
                self.timer.cancel()
                self.timer.join()
            has_failed = self.shim.disarm() > 0
            self.mend_link()
        if spoiled and not has_failed and not any(p.lost("expired") for p in self.parties):
            raise spoiled  # nor was the machine too slow for such short leases
        self.check(keys, has_failed)
        return has_failed

    def costs(self, news):
        """How many requests and connections the run has cost, and whether the link is one."""
        links = len(re.findall('redis_(?:down|connect_failed) .*reason="?(?:out of memory|Cannot '
                               'allocate memory|a reply that is none)', news))
        costs = links + sum(party.was_cut for party in self.parties)
        for party in self.parties:
            costs += party.refusals.count("quota")
            if not links and not self.was_link_cut:
                costs += party.refusals.count("unavailable")
        return costs

    def check(self, keys, has_failed):
        assert self.daemon.process.is_running(), self.daemon.log()
        for party in self.parties:
            party.settle()
        news = self.news()
        assert not DEFECT.search(news), news
        costs = self.costs(news)
        assert costs <= has_failed or self.outage, "\n".join([
            f"it cost {costs} requests and connections, {has_failed} allocations failed", news,
            *(f"{p.was_cut} {p.pending} {p.client.received}" for p in self.parties)])
        for party in self.parties:
            if party.was_cut:
                self.kept |= party.keys
            party.end()
            self.daemon.clients.remove(party.client)
        self.check_free([key for key in keys if key not in self.kept])

    def check_free(self, keys):
        """Anybody can have these locks, and nothing is left of them in Redis."""
        client = self.daemon.client()
        for key in keys:
            reply = client.request("acquire", key=key, wait_ms=PATIENCE * 1000)
            assert reply["ok"], (reply, self.redis.value(key))
            client.ok("release", key=key)
        wait_until(lambda: not set(self.redis.locks()) & set(keys), "the keys are gone")
        client.close()
        self.daemon.clients.remove(client)

    def check_kept(self):
        for key in self.kept:
            wait_until(lambda key=key: self.redis.value(key) is None, f"{key} runs out")
        assert self.redis.locks() == []
        if self.kept and self.daemon.process:
            self.check_free(self.kept)
        self.kept = set()


class Sweep:
    """Fails each allocation of a scenario in turn, on several stages side by side."""

    def __init__(self, stages, scenario):
        self.scenario = scenario
        self.stages = stages
        self.numbers = itertools.count(1)
        self.runs = 0
        self.lock = threading.Lock()
        self.errors = []

    def _in_parallel(self, work):
        def guarded(stage):
            try:
                work(stage)
            except Exception as error:  # pylint: disable=broad-except
                self.errors.append(error)
        threads = [threading.Thread(target=guarded, args=[stage]) for stage in self.stages]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _run(self, stage, mode, at):
        with self.lock:
            self.runs += 1
            number = self.runs
        assert number < RUNS_MAX and not self.errors
        return stage.run(self.scenario, number, mode, at)

    def _numbers(self, stage):
        """Two in a row that are not reached: that was the last."""
        missed = 0
        while missed < 2:
            with self.lock:
                number = next(self.numbers)
            missed = 0 if self._run(stage, ALLOC_NUMBER, number) else missed + 1

    def sites(self):
        """(hash, an example, whether it has failed) of all stages' sites."""
        found = {}
        for stage in self.stages:
            for site in stage.shim.sites():
                known = found.setdefault(site.hash, site)
                known.failed = max(known.failed, site.failed)
        return found

    def _left(self):
        return [site for site in self.sites().values() if not site.failed]

    def _sites(self):
        left = iter(self._left() * SITE_TRIES)

        def work(stage):
            while True:
                with self.lock:
                    site = next(left, None)
                if site is None:
                    return
                if not self.sites()[site.hash].failed:
                    self._run(stage, ALLOC_SITE, site.hash)
        self._in_parallel(work)

    def all(self, by_number=True):
        """Runs all; without `by_number` only the first allocation at each site fails."""
        for stage in self.stages:
            self._run(stage, ALLOC_COUNT, 0)
            assert not stage.kept
        if by_number:
            self._in_parallel(self._numbers)
        by_number = len(self.sites()) - len(self._left())
        self._sites()
        self._in_parallel(Stage.check_kept)
        left = self._left()
        assert not left, "\n".join(map(str, left))
        return (f"{self.scenario.__name__}: {self.runs} runs, {len(self.sites())} sites, all failed: "
                f"{by_number} by number, {len(self.sites()) - by_number} by name")


# The scenarios.


def clients(stage, keys):
    """Several clients, nearly all requests, and lines that are none."""
    first, second, third, mortal = [stage.party() for _ in range(4)]
    first.ask("hello", client="first")
    first.ask("acquire", key=keys[0], ttl_ms=T, note="a purpose")
    waiting = second.send("acquire", key=keys[0], ttl_ms=T, wait_ms=-1)
    second.ask("ping")
    given_up = third.send("acquire", key=keys[0], owner="x", ttl_ms=T, wait_ms=-1)
    third.ask("cancel", target=given_up)
    third.take(given_up, error="cancelled")
    third.ask("acquire", key=keys[0], ttl_ms=T, error="busy")
    first.ask("extend", key=keys[0], ttl_ms=T + 1)
    first.ask("check", key=keys[0])
    first.ask("list")
    first.ask("stats")
    first.ask("query", key=keys[0])
    first.ask("query", key=keys[5])
    first.ask("release", key=keys[0], status="done")
    second.take(waiting)
    mortal.ask("acquire", key=keys[1], ttl_ms=T)
    waiting = third.send("acquire", key=keys[1], ttl_ms=T, wait_ms=-1)
    third.ask("ping")
    mortal.end()
    third.take(waiting)
    nonsense(third, first)
    first.ask("acquire", key=keys[2], ttl_ms=T, max_hold_ms=T, renew=False)
    first.ask("break", key=keys[2], reason="a ticket")
    stage.redis.client.set(LOCK_PREFIX + keys[3], "a stranger's")
    try:
        first.ask("acquire", key=keys[3], ttl_ms=T, error="busy")
        waiting = first.send("acquire", key=keys[3], ttl_ms=T, wait_ms=-1)
    finally:
        stage.redis.client.delete(LOCK_PREFIX + keys[3])
    first.take(waiting)
    many(first, keys[4])
    second.ask("release", key=keys[0])
    third.ask("release", key=keys[1])


def nonsense(party, other):
    party.say(b'{"id":1,"id":2}\n')
    party.take(None, error="malformed")
    party.say(b"x" * 9000 + b"\n")
    party.take(None, error="too_long")
    party.say(b'{"id":"half","op"')
    try:
        other.ask("ping")
        other.ask("ping")  # by then the half line has been read
    finally:
        party.say(b':"ping"}\n', "half")
    party.take("half")
    party.ask("dance", error="unknown_op")


def many(party, key):
    """So many at once that buffers grow."""
    waiting = [party.send("acquire", key=key, owner=str(i), ttl_ms=T, wait_ms=-1, note="n" * 200)
               for i in range(8)]
    asked = [party.send("list") for _ in range(8)]
    for i, request in enumerate(waiting):
        party.take(request)
        party.ask("release", key=key, owner=str(i))
    for request in asked:
        party.take(request)


def burst(stage, keys):
    """So many operations under way at once that the queue for their outcomes grows."""
    party = stage.party()
    stage.redis.sigstop()
    try:
        asked = [party.send("query", key=keys[0]) for _ in range(BURST)]
        party.ask("ping")
    finally:
        stage.redis.sigcont()
    for request in asked:
        party.take(request)


def away(stage, keys):
    """Redis forgets its scripts, a renewal of several locks, Redis goes away and comes back."""
    first, second, third = [stage.party() for _ in range(3)]
    for key in keys[:3]:
        first.ask("acquire", key=key, ttl_ms=T_SHORT)
    waiting = second.send("acquire", key=keys[0], ttl_ms=T_SHORT, wait_ms=-1)
    second.ask("ping")
    stage.redis.client.script_flush()
    stage.wait_renewed(keys[:3], first)
    first.ask("release", key=keys[0])
    second.take(waiting)
    stage.cut_link()
    third.ask("acquire", key=keys[3], ttl_ms=T, error="unavailable")
    waiting = third.send("acquire", key=keys[4], ttl_ms=T, wait_ms=-1)
    asked = first.send("release", key=keys[1])
    second.ask("query", key=keys[5], error="unavailable")
    stage.mend_link()
    third.take(waiting)
    first.take(asked)
    stage.redis.client.delete(LOCK_PREFIX + keys[2])
    wait_until(lambda: first.was_cut or first.client.has(event="lost", key=keys[2]), "a loss")


def first_minute(stage, keys):
    """A start, a lock, and so many connections that the loop's tables grow."""
    party = stage.party()
    party.ask("acquire", key=keys[0], ttl_ms=T, wait_ms=-1)
    party.ask("release", key=keys[0])
    for _ in range(CROWD):
        stage.party().ask("ping")


def broken(stage, keys):
    """The link breaks and is made again."""
    first, second = [stage.party() for _ in range(2)]
    first.ask("acquire", key=keys[0], ttl_ms=T)
    waiting = second.send("acquire", key=keys[0], ttl_ms=T, wait_ms=-1)
    second.ask("ping")
    stage.break_link()
    first.ask("release", key=keys[0])
    second.take(waiting)


class Fresh(Stage):
    """A daemon that is started anew for each run: what grows, grows once in its life."""

    def run(self, scenario, number, mode, at):
        try:
            return super().run(scenario, number, mode, at)
        finally:
            self.shim.disarm()
            self.daemon.stop()


class Named(Stage):
    """A daemon that finds its Redis by name."""

    def __init__(self, lab):
        super().__init__(lab, lab.redis(tcp=True))

    def make_daemon(self, lab):
        return lab.new_daemon(f"redis://localhost:{self.redis.port}")


class Start(Named):
    """A daemon that is started anew for each run."""

    def __init__(self, lab):
        super().__init__(lab)
        self.refusals = 0  # to start
        self.flaws = 0  # of the C library
        self.stuck_after = 0

    def make_daemon(self, lab):
        config = lab.path(f"{self.redis.port}.conf")
        with open(config, "w", encoding="utf-8") as file:
            file.write("drain_timeout = 100ms\n")
        return lab.new_daemon(f"redis://localhost:{self.redis.port}", config=config)

    def run(self, scenario, number, mode, at):
        self.news()
        self.parties = []
        self.shim.arm(mode, at)
        self.stuck_after = time.monotonic() + PATIENCE / 4
        self.daemon.launch()
        try:
            outcome = wait_until(self.outcome, "the daemon reaches Redis or ends")
            if outcome == "up":
                return super().run(scenario, number, mode, at)
            if outcome == "refused":
                assert self.daemon.wait_exit() == START_FAILED
                self.refusals += 1
            else:
                self.forgive(outcome)
            return True
        finally:
            self.shim.disarm()
            self.daemon.stop()

    def prepare(self, mode, at):
        pass

    def outcome(self):
        """What has come of the start; None while that is open."""
        is_running = self.daemon.process.is_running()
        told = self.daemon.log()[self.told:]
        if "event=redis_up" in told:
            return "up"
        if "event=start_failed" in told or "lockbrokerd: " in told and "out of memory" in told:
            return None if is_running else "refused"
        if not is_running:
            return "dead"
        return "stuck" if time.monotonic() > self.stuck_after and self.is_libc() else None

    def is_libc(self):
        """Whether the C library alone asked for what failed, in looking up a name."""
        askers = self.shim.failed_site().modules()
        askers = [name for name in askers if not name.startswith("libasan")]
        return askers[0].startswith(("libc.", "ld-linux")) and "" not in askers

    def forgive(self, outcome):
        """The very first look-up of a name in a process is where glibc 2.36 crashes (nss_database),
        leaves a lock locked or fails for ever after (resolv_conf) when memory is short. The broker cannot avoid it, and
        has no locks yet. Everything else in it goes on, but for reaching Redis."""
        assert self.is_libc(), f"{self.shim.failed_site()}\n{self.daemon.log()}"
        self.flaws += 1
        if outcome == "stuck":
            self.daemon.client().ok("ping")
            self.daemon.client().fails("unavailable", "acquire", key="key")
        else:
            self.daemon.process.ended_by_test = True
            os.truncate(self.daemon.log_path, 0)
            self.told = 0


# The tests.


@pytest.fixture
def tell(capsys):
    """Prints a line also when the test passes."""
    def say(line):
        with capsys.disabled():
            print(f"\n{line}")
    return say


def test_row_52_any_allocation_at_the_start(lab, tell):
    sweep = Sweep([Start(lab) for _ in range(WORKERS)], first_minute)
    tell(sweep.all())
    flaws = sum(stage.flaws for stage in sweep.stages)
    tell(f"refused to start: {sum(stage.refusals for stage in sweep.stages)} times; "
         f"flaws of the C library: {flaws}")
    assert flaws <= FLAWS_MAX


def test_row_52_any_allocation_while_clients_ask(lab, tell):
    tell(Sweep([Stage(lab) for _ in range(WORKERS)], clients).all())


def test_row_52_any_allocation_in_a_burst(lab, tell):
    tell(Sweep([Fresh(lab) for _ in range(WORKERS)], burst).all(by_number=False))


def test_row_52_any_allocation_while_redis_is_away(lab, tell):
    tell(Sweep([Stage(lab) for _ in range(2 * WORKERS)], away).all())


def test_row_52_any_allocation_of_a_new_link(lab, tell):
    tell(Sweep([Named(lab) for _ in range(WORKERS)], broken).all())


def test_row_52_no_memory_at_all_for_a_while(lab):
    stage = Stage(lab)
    stage.outage = 0.3  # of a second
    numbers = range(1, 100, 6)
    failures = sum(stage.run(clients, n, ALLOC_NUMBER, n) for n in numbers)
    stage.check_kept()
    assert failures == len(numbers)
