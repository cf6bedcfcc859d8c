"""The errors a user can meet. Each says what was asked, which rule it broke, and what would work."""
import builtins
import re


class MinitpError(Exception):
    """An error whose message is for the user: the command line prints it without a traceback."""


class ConfigError(MinitpError, ValueError):
    """A model, a placement or an option that can't be: found before any file is read."""


class FileFormatError(MinitpError, ValueError):
    """A checkpoint, trace or tokenizer file that breaks its format's rules."""


class StateError(MinitpError, TypeError):
    """An array was used in a way its state (whole, shard, partial sum, on root) doesn't allow."""


class CollectiveError(MinitpError, RuntimeError):
    """Ranks disagree about a collective, or one never arrived."""


class NumericsError(MinitpError, ArithmeticError):
    """A computation left the numbers: NaN where there must be none."""


class LaunchError(MinitpError, RuntimeError):
    """Ranks could not be started, or were started in a way that can't work."""


class OutOfTimeError(LaunchError):
    """A run has taken longer than it was given."""


class FetchError(MinitpError, RuntimeError):
    """A model's files could not be fetched, or could not be stored."""


class SaveError(MinitpError, RuntimeError):
    """A file could not be written: a full disk, a folder that can't be written to, something foreign in its place."""


def without_number(error: Exception) -> str:
    """What an error says, without the number that the system has for it."""
    return re.sub(r"^\[Errno \d+\] ", "", str(error))


def error_named(name: str) -> type[Exception]:
    """The class of an error that another rank met: one of minitp's, or an OSError and its kinds."""
    found = globals().get(name, getattr(builtins, name, None))
    return found if isinstance(found, type) and issubclass(found, (MinitpError, OSError)) else OSError
