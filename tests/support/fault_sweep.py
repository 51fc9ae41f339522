"""Runs a scenario with a daemon under the fault shim again and again, each time with another
allocation that fails, and judges what that cost."""

import itertools
import os
import re
import threading
import time

from fault_shim import ALLOC_COUNT, ALLOC_NUMBER, ALLOC_SITE, Shim
from lockbroker import DEFECT, PATIENCE, wait_until

RUNS_MAX = 2000  # far more than any scenario needs
SITE_TRIES = 6


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

    def channel_is_up(self):
        log = self.daemon.log()
        log = log[log.rfind("event=start "):]  # not what a process before this one said
        return log.rfind("event=redis_channel_up") > max(log.rfind("event=redis_channel_down"),
                                                         log.rfind("event=redis_channel_failed"))

    def prepare(self, mode, at):
        if not self.daemon.process:
            self.daemon.start()
        # It comes after the link, and what it asks for belongs to no scenario that begins here.
        wait_until(self.channel_is_up, "the channel")
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
