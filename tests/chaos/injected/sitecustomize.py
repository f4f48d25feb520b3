"""Loaded by every Python process of the chaos, before anything else: bad weather over the store, and a jumping clock.

``MARIN_CHAOS_WEATHER`` is a file of a few bytes, each a probability, which the conductor changes while we run:
in percent ``FULL`` (ENOSPC), ``FORBIDDEN`` (EACCES) and ``SICK`` (EIO of an fsync that has done its work), and in
thousandths ``DEADLY`` and ``NUMB``: the process kills or stops itself at a call, so that every moment of publishing,
taking over and cleaning up is struck some time.
"""

import builtins
import datetime
import errno
import io
import mmap
import os
import random
import signal
import time

FULL, FORBIDDEN, SICK, DEADLY, NUMB = KINDS = range(5)
STORE = os.environ.get("MARIN_CHAOS_STORE", "")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def weather():
    place = os.environ["MARIN_CHAOS_WEATHER"]
    told = os.open(f"{place}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    with open(place, "rb") as file:
        return Weather(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), told)


class Weather:
    """Refuses what the sky says, and keeps count: a line with the kind for each refusal."""

    def __init__(self, sky, told):
        self.sky, self.told = sky, told
        self.chance = random.Random(os.urandom(8))

    def strike(self, kind, code, what):
        if self.sky[kind] and self.chance.random() * 100 < self.sky[kind]:
            os.write(self.told, b"%d\n" % kind)
            raise OSError(code, os.strerror(code), str(what))

    def fall(self, kind, number):
        if self.sky[kind] and self.chance.random() * 1000 < self.sky[kind]:
            os.write(self.told, b"%d\n" % kind)
            os.kill(os.getpid(), number)

    def check(self, path, relative):
        if not isinstance(path, int) and (relative or os.fspath(path).startswith(STORE)):
            self.strike(FULL, errno.ENOSPC, path)
            self.strike(FORBIDDEN, errno.EACCES, path)
            self.fall(DEADLY, signal.SIGKILL)
            self.fall(NUMB, signal.SIGSTOP)

    def over(self, function, writes=lambda arguments, options: True):
        """``function`` of a path, which may fail where ``writes`` says that it would write."""

        def call(path, *arguments, **options):
            if writes(arguments, options):
                self.check(path, options.get("dir_fd") is not None or options.get("src_dir_fd") is not None)
            return function(path, *arguments, **options)

        return call

    def over_sync(self, sync):
        def call(file):
            sync(file)
            self.strike(SICK, errno.EIO, file)

        return call


def inject(weather):
    os.fsync = weather.over_sync(os.fsync)
    builtins.open = io.open = weather.over(open, lambda arguments, options: mode_of(arguments, options) & set("wax+"))
    os.open = weather.over(os.open, lambda arguments, options: arguments[0] & WRITES)
    os.mkdir, os.rename, os.replace = weather.over(os.mkdir), weather.over(os.rename), weather.over(os.replace)


def mode_of(arguments, options):
    return set(options.get("mode", arguments[0] if arguments else "r"))


def jump():
    """The wall clock stands still for no longer than two seconds: then it is months earlier or later."""
    real = time.time
    mine = int.from_bytes(os.urandom(4), "big")

    def shift():
        return ((int(time.monotonic() / 2) * 2654435761 + mine) % 15 - 7) * 30 * 86400.0

    class Jumping(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(real() + shift(), tz)

    time.time = lambda: real() + shift()
    datetime.datetime = Jumping


if STORE:
    inject(weather())
    jump()
