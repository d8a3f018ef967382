"""The folder of a sweep: its points, and the state of each as files, so that it goes on after anything.

``sweep.json`` has the sweep as resolved. ``points/NAME`` is made when a point is claimed, with ``experiment.yaml``,
``claimed`` while a process has the point, ``attempt-N`` of each attempt (with ``ended.json`` once it has ended, and
``log.txt``), and ``done.json`` or ``failed.json`` at the end. Attempts that were cut short are ``attempt-N.cut``.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from threading import get_native_id
from typing import Any, Literal

from commands.origin import origin, sha256
from commands.sweep.spec import EXPERIMENT_FILE, MOST_SWEPT, SweepFile, SweepPoint, SweepSpec, attempt_folder, in_order
from experiments.settings import validated
from measure.results.folder import FolderLock
from measure.results.results import SWEEP, Results
from railyard import __version__
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS, ConfigError
from railyard.ownership import make_folder, naming, open_new, reached
from railyard.point_folder import POINTS
from railyard.reading import read_bytes
from railyard.validation import Name, Seconds, Whole, from_plain
from railyard.yaml_file import written_mapping
from topos.kernel.run_watcher import Process

CLAIMED = "claimed"
_MOST_CLAIM_BYTES = 4096
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MACHINE = Path("/etc/machine-id")


@cache
def host_name() -> str:
    return socket.gethostname()


@cache
def boot_id() -> str:
    """The id that the kernel drew when this machine was started."""
    return _BOOT.read_text().strip()


@cache
def machine_id() -> str:
    """A hash of the id that this machine was installed with, which is not to be told; empty if it has none."""
    try:
        installed = _MACHINE.read_bytes().strip()
    except OSError:
        return ""
    return hashlib.sha256(b"railyard " + installed).hexdigest()[:16] if installed else ""


@cache
def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


@dataclass(frozen=True)
class PointClaim:
    """A process that has a point: its host, id, start time (clock ticks since boot) and boot; ``who`` for people.

    ``namespace`` is the number of the namespace that its process id is of, ``machine`` tells machines with one host
    name apart (``machine_id``).
    """

    host: Name
    pid: Whole
    started: Whole
    boot: Name
    namespace: Whole
    who: Name
    machine: str = ""

    @staticmethod
    def mine(who: str = "") -> PointClaim:
        me = Process.of(os.getpid())
        assert me is not None
        name = who or f"process {me.pid}"
        return PointClaim(host_name(), me.pid, me.started, boot_id(), _namespace(), name, machine_id())

    @property
    def holds(self) -> bool:
        """Whether its process may still run: one that cannot be seen from here does."""
        if self.host != host_name():
            return True
        if self.boot != boot_id():  # of this machine before it was started again, or of another one
            return "" != self.machine != machine_id() != ""
        return self.namespace != _namespace() or Process(self.pid, self.started).alive


def claim_in(folder: Path) -> PointClaim | None:
    """The claim in the folder of a point; None without one. ``ConfigError`` for a file that is none."""
    path = folder / CLAIMED
    if not os.path.lexists(path):
        return None
    try:
        return from_plain(PointClaim, read_bytes(path, _MOST_CLAIM_BYTES, "a claim"), "a claim", str(path))
    except ConfigError:
        if os.path.lexists(path):
            raise
        return None  # removed meanwhile


def take_claim(folder: Path, who: str, guard: Path) -> bool:
    """Claim the point of ``folder`` for this process; False if another one has it.

    The file appears with its whole content, and for one process only. Claims of the dead are removed under the lock of
    the folder ``guard``, so that no claim of the living is.
    """
    make_folder(folder)
    mine = json.dumps(asdict(PointClaim.mine(who))).encode()
    draft = f".{CLAIMED}.{os.getpid()}.{get_native_id()}"
    with naming(folder / CLAIMED), reached(folder.absolute()) as place:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=place)
        with open(open_new(draft, place), "wb") as file:
            file.write(mine)
            file.flush()
            os.fsync(file.fileno())
        try:
            return _linked(draft, place) or (_freed(folder, place, guard) and _linked(draft, place))
        finally:
            os.unlink(draft, dir_fd=place)


def _linked(draft: str, place: int) -> bool:
    try:
        os.link(draft, CLAIMED, src_dir_fd=place, dst_dir_fd=place)
    except FileExistsError:
        return False
    return True


def _freed(folder: Path, place: int, guard: Path) -> bool:
    """Remove the claim of a dead process; False if it is of a living one."""
    with _locked(guard):
        claim = claim_in(folder)
        if claim is not None and claim.holds:
            return False
        with suppress(FileNotFoundError):
            os.unlink(CLAIMED, dir_fd=place)
        return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    make_folder(folder)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


# ---- the folder of a sweep -------------------------------------------------------------------------------------------


DONE, FAILED, ENDED, LOG, ROWS = "done.json", "failed.json", "ended.json", "log.txt", "rows.json"
FORMAT = 1
_MARK = "railyard_sweep"
_MOST_BYTES = 64 << 20
_MOST_RECORD_BYTES = 1 << 20
_MOST_SAID = 1000
COMPLETE = (0, NOT_FAITHFUL_EXIT_STATUS)
"""Exit statuses of an attempt with results."""
_ATTEMPT = re.compile(r"attempt-([0-9]{1,6})")
State = Literal["pending", "claimed", "done", "failed"]


@dataclass(frozen=True)
class Ended:
    """How an attempt of a point ended: the exit status of its command on ``host`` after ``seconds``.

    ``machine`` are facts by which machines differ, ``said`` is the last line of the log of one that failed, and
    ``attempts`` how many attempts of the point have ended.
    """

    attempt: Whole
    status: Whole
    host: Name
    seconds: Seconds
    machine: Mapping[str, Any] = field(default_factory=dict)
    said: str = ""
    attempts: Whole = 1


@dataclass(frozen=True)
class PointCounts:
    """How many points are in each state; ``unfaithful`` of the ``done`` ones ended as not faithful."""

    pending: int
    claimed: int
    done: int
    failed: int
    unfaithful: int

    @property
    def total(self) -> int:
        return self.pending + self.claimed + self.done + self.failed


class SweepFolder:
    """A folder of a sweep that exists: ``create`` makes one, ``open`` reads one. ``ConfigError`` for another folder."""

    def __init__(
        self, path: Path, spec: SweepSpec, inputs: Sequence[Mapping[str, Any]] = (), version: str = __version__
    ) -> None:
        self.path = path
        self._points = path.resolve() / POINTS  # without symbolic links: none that is put below later is followed
        self._version = version
        self.spec = spec
        self.inputs = inputs
        """The files that the points name, each with its SHA-256 when the sweep began."""
        self._by_name = {point.name: point for point in spec.points}

    @staticmethod
    def create(path: Path, spec: SweepSpec) -> SweepFolder:
        values = {"values": [point.values for point in spec.points if point.repeat == 0]}
        inputs = origin("sweep", (), values, [spec.file.experiment])["inputs"]
        head = {
            _MARK: FORMAT,
            "version": __version__,
            "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "file": spec.file.model_dump(mode="json"),
            "inputs": inputs,
        }
        lines = [json.dumps(asdict(point)).encode() for point in spec.points]
        if sum(len(line) + 2 for line in lines) + len(json.dumps(head)) + 100 > _MOST_BYTES:
            raise ConfigError(f"takes more than {_MOST_BYTES >> 20} MiB; make several sweeps of it", key="sweep")
        lock = FolderLock.claim(path)
        try:
            Results(path).write(SWEEP, _with_points(json.dumps(head), lines))
        finally:
            lock.free()
        return SweepFolder(path, spec, inputs)

    @staticmethod
    def open(path: Path) -> SweepFolder:
        source = path / SWEEP
        if not source.is_file():
            raise ConfigError(f"{path} is not the folder of a sweep: it has no {SWEEP}", key="sweep")
        try:
            data = json.loads(read_bytes(source, _MOST_BYTES, "the record of a sweep"))
            if not isinstance(data, dict) or data.get(_MARK) != FORMAT:
                raise ValueError(f"it is not of format {FORMAT}")
            points = data["points"]
            if not isinstance(points, list) or len(points) > MOST_SWEPT:
                raise ValueError(f"points are no list of at most {MOST_SWEPT:,}")
            inputs = [{"file": str(each["file"]), "sha256": str(each["sha256"])} for each in data["inputs"]]
            file = dict(data["file"])
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ConfigError(
                f"cannot be read ({error}); begin the sweep again in a new folder", source=str(source)
            ) from None
        spec = SweepSpec(
            validated(SweepFile, file, str(source)),
            [from_plain(SweepPoint, each, "a point", str(source)) for each in points],
        )
        if {(point.experiment, point.predict) for point in spec.points} - {(spec.file.experiment, spec.file.predict)}:
            raise ConfigError("has points of another experiment than its own", key="points", source=str(source))
        return SweepFolder(path, spec, inputs, str(data.get("version", "unknown")))

    @contextmanager
    def locked(self, *, shared: bool = False) -> Iterator[None]:
        """Keep others out for the block: all, or with ``shared`` those who want the folder for themselves."""
        lock = FolderLock.take(self.path, shared=shared)
        try:
            yield
        finally:
            lock.free()

    def check_inputs(self, *, again: bool = False) -> None:
        """Raise ``ConfigError`` if points would be run otherwise than when the sweep began.

        That is by another version of Railyard, where points are left (with ``again`` also those that failed), or with
        another content of a file that the points name.
        """
        left = ("pending", "failed") if again else ("pending",)
        if self._version != __version__ and any(self.state(point) in left for point in self.points):
            raise ConfigError(
                f"{self.path} was begun by Railyard {self._version[:40]!a} and this is {__version__}; go on with that "
                f"version, or begin a new sweep",
                key="sweep",
            )
        for each in self.inputs:
            path = Path(each["file"])
            with suppress(OSError):
                if path.is_file() and sha256(path) == each["sha256"]:
                    continue
            raise ConfigError("is not as it was when the sweep began; put it back, or begin a new sweep",
                              source=str(path))  # fmt: skip

    # ---- points and their states -------------------------------------------------------------------------------

    @property
    def points(self) -> Sequence[SweepPoint]:
        """All points; repeats of the same values stand beside each other."""
        return self.spec.points

    def point(self, name: str) -> SweepPoint:
        """The point of a name; ``ConfigError`` if there is none."""
        if name not in self._by_name:
            raise ConfigError(f"is no point of {self.path}; railyard sweep {self.path} --list names them", key=name)
        return self._by_name[name]

    def place(self, point: SweepPoint) -> Path:
        return self._points / point.name

    def state(self, point: SweepPoint) -> State:
        """The state of a point; a claim whose process is dead counts for nothing."""
        try:
            names = set(os.listdir(self.place(point)))
        except FileNotFoundError:
            return "pending"
        if DONE in names:
            return "done"
        if FAILED in names:
            return "failed"
        if CLAIMED in names:
            claim = claim_in(self.place(point))
            return "claimed" if claim is not None and claim.holds else "pending"
        return "pending"

    def pending(self) -> list[SweepPoint]:
        """The points that nobody has and that have not ended, in the order in which they are to be run."""
        return in_order([point for point in self.points if self.state(point) == "pending"], self.spec.seed)

    def states(self) -> PointCounts:
        counts = Counter(self.state(point) for point in self.points)
        bad = sum(ended.status == NOT_FAITHFUL_EXIT_STATUS for _, ended in self.done())
        return PointCounts(counts["pending"], counts["claimed"], counts["done"], counts["failed"], bad)

    def claims(self) -> Iterator[tuple[SweepPoint, PointClaim]]:
        """The points that processes have now, with their claims."""
        for point in self.points:
            claim = claim_in(self.place(point)) if self.state(point) == "claimed" else None
            if claim is not None:
                yield point, claim

    def done(self) -> Iterator[tuple[SweepPoint, Ended]]:
        """The points that are done, each with its last attempt, in the order of all points."""
        return self._ended(DONE)

    def failed(self) -> Iterator[tuple[SweepPoint, Ended]]:
        return self._ended(FAILED)

    def failure(self, point: SweepPoint) -> Ended | None:
        """The last attempt of a point that failed; None for any other point."""
        path = self.place(point) / FAILED
        return _record(path) if path.exists() else None

    def _ended(self, name: str) -> Iterator[tuple[SweepPoint, Ended]]:
        for point in self.points:
            path = self.place(point) / name
            if path.exists():
                yield point, _record(path)

    # ---- from claim to end -------------------------------------------------------------------------------------

    def claim(self, point: SweepPoint, who: str = "") -> bool:
        """Take a pending point for this process; False if another one has it or it has ended. ``who`` is for people."""
        if not take_claim(self.place(point), who, self._points):
            return False
        if any((self.place(point) / name).exists() for name in (DONE, FAILED)):
            self.release(point)
            return False
        return not self._settled(point)

    def release(self, point: SweepPoint) -> None:
        """Give a point up that this process has claimed."""
        self._remove(point, CLAIMED)

    def begin(self, point: SweepPoint) -> int:
        """Make the folder of the next attempt of a claimed point; returns its number.

        An attempt that did not end is set aside as ``attempt-N.cut``, or removed if it is empty.
        """
        place = self.place(point)
        make_folder(place.absolute())
        ended = self.attempts(point)
        for number in _numbers(place):
            if number not in {each.attempt for each in ended}:
                _set_aside(place, number)
        number = max((each.attempt for each in ended), default=0) + 1
        files = Results(place)
        files.write(EXPERIMENT_FILE, written_mapping(point.file))
        make_folder(attempt_folder(place, number).absolute())
        return number

    def attempts(self, point: SweepPoint) -> list[Ended]:
        """The attempts of a point that have ended, in their order."""
        place = self.place(point)
        files = [attempt_folder(place, number) / ENDED for number in _numbers(place)]
        return [_record(path) for path in files if path.exists()]

    def end_attempt(self, point: SweepPoint, ended: Ended) -> bool:
        """Record an attempt of a claimed point; whether the point has ended, and is released.

        It has with status 0, with 8 (not faithful) after as many attempts as the sweep has ``tries``, and as failed
        with any other, which leaves no results. All attempts stay, and the last one counts.
        """
        count = len({each.attempt for each in self.attempts(point)} | {ended.attempt})
        ended = replace(ended, attempts=count, said=ended.said[:_MOST_SAID])
        Results(attempt_folder(self.place(point), ended.attempt)).write(ENDED, json.dumps(asdict(ended)))
        if ended.status in COMPLETE:
            return self._settled(point)
        self._end(point, FAILED, ended)
        return True

    def again(self) -> int:
        """Make all points that failed pending once more; returns their number."""
        failed = [point for point, _ in self.failed()]
        for point in failed:
            self._remove(point, FAILED)
        return len(failed)

    def _settled(self, point: SweepPoint) -> bool:
        """End a point that has enough attempts, also if its process was killed before it did; whether it has."""
        ended = self.attempts(point)
        tries = sum(each.status == NOT_FAITHFUL_EXIT_STATUS for each in ended)
        last = ended[-1].status if ended else None
        if last != 0 and (last != NOT_FAITHFUL_EXIT_STATUS or tries < self.spec.file.tries):
            return False
        self._end(point, DONE, ended[-1])
        return True

    def _end(self, point: SweepPoint, name: str, ended: Ended) -> None:
        Results(self.place(point)).write(name, json.dumps(asdict(ended)))
        self.release(point)

    def _remove(self, point: SweepPoint, name: str) -> None:
        with suppress(FileNotFoundError), reached(self.place(point).absolute()) as place:
            os.unlink(name, dir_fd=place)


def _with_points(head: str, lines: Iterable[bytes]) -> Iterator[bytes]:
    """The record of a sweep in pieces, with a line for each point."""
    yield f'{head[:-1]}, "points": [\n'.encode()
    for number, line in enumerate(lines):
        yield (b",\n" if number else b"") + line
    yield b"\n]}\n"


def _record(path: Path) -> Ended:
    return from_plain(Ended, read_bytes(path, _MOST_RECORD_BYTES, "a record"), "the end of an attempt", str(path))


def _numbers(place: Path) -> list[int]:
    return sorted(int(found[1]) for name in os.listdir(place) if (found := _ATTEMPT.fullmatch(name)))


def _set_aside(place: Path, number: int) -> None:
    """Rename the folder of an attempt that was cut short, or remove it if it is empty."""
    name = attempt_folder(place, number).name
    with reached(place.absolute()) as here:
        with suppress(OSError):  # it is not empty
            os.rmdir(name, dir_fd=here)
            return
        taken = set(os.listdir(place))
        cut = next(
            each for n in range(1, 10_000) if (each := f"{name}.cut" if n == 1 else f"{name}.cut{n}") not in taken
        )
        os.rename(name, cut, src_dir_fd=here, dst_dir_fd=here)
