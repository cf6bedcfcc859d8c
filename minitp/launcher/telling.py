"""What the ranks are doing and what went wrong, in words: one style for both worlds."""
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from minitp.errors import CollectiveError, MinitpError, OutOfTimeError

if TYPE_CHECKING:
    from minitp.comm.communicator import Communicator

USER_ERROR, PROGRAM_ERROR, INTERRUPTED, OUT_OF_TIME = 2, 1, 130, 124        # exit codes


def name_ranks(ranks: list[int]) -> str:
    """rank 2; ranks 0 and 3; ranks 0-3."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]}-{ranks[-1]}"
    return "ranks " + ", ".join(map(str, ranks[:-1])) + f" and {ranks[-1]}"


def position(group: "Communicator | None") -> str:
    """What the rank of this communicator is doing."""
    if group is None:
        return "has not begun"
    pending, latest = group.pending, group.latest
    if pending is not None:
        return f"waiting in {pending[0]}"
    return "computing, no collective call yet" if latest is None else f"computing; its last call was {latest}"


def positions(where: Mapping[int, str]) -> str:
    """One indented line per position, naming the ranks that share it."""
    shared: dict[str, list[int]] = {}
    for rank in sorted(where):
        shared.setdefault(where[rank], []).append(rank)
    return "\n".join(f"  {name_ranks(ranks)}: {text}" for text, ranks in shared.items())


def failed_at(error: BaseException, group: "Communicator | None") -> str:
    """"in <the call>" where the error came out of a collective, else "after <the last one>"."""
    latest = None if group is None else group.latest
    if latest is None:
        return ""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "_run" and isinstance(trace.tb_frame.f_locals.get("self"), type(group)):
            return f"in {latest}"
        trace = trace.tb_next
    return f"after {latest}"


def words_of(error: BaseException) -> str:
    """str(error), also of one whose own words fail."""
    try:
        return str(error)
    except BaseException:
        return "(its text can't be made)"


def in_short(error: BaseException) -> str:
    """For a trace's header: what it was, without where in the code."""
    kind = "" if isinstance(error, MinitpError) else f"{type(error).__name__}: "
    return _with_notes(f"{kind}{words_of(error)}", error)


def _with_notes(text: str, error: BaseException) -> str:
    return "\n  ".join([text, *getattr(error, "__notes__", [])])


def is_silent(error: BaseException) -> bool:
    """Whether it is sys.exit with a number: then Python says nothing."""
    return isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int))


def is_about_the_request(error: BaseException) -> bool:
    """Whether it is all the same where in a run it was raised, if every rank did: what was asked for can't be."""
    return isinstance(error, MinitpError) and not isinstance(error, CollectiveError | OutOfTimeError)


@dataclass(frozen=True)
class Failure:
    """An error as it will be told: the exit code, the text, and a key that equal errors of other ranks share."""
    code: int
    text: str
    key: str
    known: bool                     # a message for the user, so most likely every rank is about to raise the same
    alike: str = ""                 # what is said instead where every rank raised it
    short: str = ""                 # what a trace's header says of it

    def said_by(self, ranks: list[int], size: int) -> str:
        """The text with the ranks it is true of: the first of `ranks` speaks for all of them."""
        if size == 1 or not self.text or self.code == INTERRUPTED:
            return self.text
        if self.alike and len(ranks) == size:
            return self.alike
        if self.known:
            return f"{self.text}\n  on {name_ranks(ranks)}"
        lines = self.text.splitlines()
        if len(ranks) > 1:
            lines.append(f"(the same error on {name_ranks(ranks)})")
        return "\n".join(f"rank {ranks[0]}: {line}" for line in lines)

    def short_by(self, ranks: list[int], size: int) -> str:
        """What a trace's header says of it, with the ranks it is true of."""
        return self.short if size == 1 or (self.alike and len(ranks) == size) else (
            f"{self.short}\n  on {name_ranks(ranks)}")


def describe(error: BaseException, hide: str | None = None) -> Failure:
    """How `error` is told: a user's error without a traceback, any other with one (from the file `hide` on)."""
    code, known, alike = PROGRAM_ERROR, isinstance(error, MinitpError), ""
    if isinstance(error, MinitpError):
        code = OUT_OF_TIME if isinstance(error, OutOfTimeError) else USER_ERROR
        text = f"minitp: error: {words_of(error)}"
        alike = text if is_about_the_request(error) else ""
        text = _with_notes(text, error)
    elif isinstance(error, MemoryError):
        code, known = USER_ERROR, True
        what = f": {error}" if str(error) else ""
        text = _with_notes(f"minitp: error: this machine's memory isn't enough{what}. A smaller model, fewer or "
                           "shorter sequences at once, or ranks on more machines need less", error)
    elif isinstance(error, KeyboardInterrupt):
        code, text = INTERRUPTED, _with_notes("minitp: stopped by Ctrl-C", error)
    elif isinstance(error, SystemExit):
        code, text = _exit_code(error)
    else:
        text = "".join(traceback.format_exception(type(error), error, _from_file(error, hide))).rstrip()
    name = f"{code} {type(error).__name__}: {words_of(error)}"
    return Failure(code, text, f"{code} {blake2b(name.encode(errors='replace'), digest_size=16).hexdigest()}", known,
                   alike, in_short(error))


def _exit_code(error: SystemExit) -> tuple[int, str]:
    """sys.exit's argument as Python means it: a number, nothing, or a text to print with code 1."""
    if is_silent(error):
        return int(error.code or 0), ""
    return PROGRAM_ERROR, _with_notes(words_of(error), error)


def _from_file(error: BaseException, hide: str | None):
    """The traceback from its first frame in the file `hide` on: what started the script is no news to its author."""
    trace = error.__traceback__
    while hide is not None and trace is not None:
        if trace.tb_frame.f_code.co_filename == hide:
            return trace
        trace = trace.tb_next
    return error.__traceback__
