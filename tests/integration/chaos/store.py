"""The store that the locks guard: a counter a key, with a check of fences.

An access with a fence below the highest one seen for its key is refused. A write tells which value
it was made from; where that is not the present value an update is lost, which is let happen and
counted. Each access is kept with its time on CLOCK_BOOTTIME, taken while the store is locked.
"""

import collections
import json
import os
import socket
import threading
import time

Access = collections.namedtuple("Access", "at key fence verb accepted")


class Store:
    def __init__(self, path):
        self.path = path
        self.values = collections.Counter()
        self.highest = collections.Counter()
        self.accesses = []
        self.writes = collections.Counter()
        self.lost_updates = 0
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        os.unlink(self.path)

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        try:
            with sock, sock.makefile("rb") as lines:
                for line in lines:
                    sock.sendall(json.dumps(self.access(*json.loads(line))).encode() + b"\n")
        except (OSError, ValueError):
            pass  # the client was killed, perhaps within a line

    def access(self, verb, key, fence, base):
        """The counter's value after it, or None where the fence is too old."""
        with self._lock:
            accepted = fence >= self.highest[key]
            self.accesses.append(Access(time.clock_gettime(time.CLOCK_BOOTTIME), key, fence, verb,
                                        accepted))
            if not accepted:
                return None
            self.highest[key] = fence
            if verb == "write":
                self.lost_updates += base != self.values[key]
                self.values[key] = base + 1
                self.writes[key] += 1
            return self.values[key]
