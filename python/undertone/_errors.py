"""The exceptions of Undertone. Each says what is wrong and what would be right, in the words of the program."""


class UndertoneError(Exception):
    """Something that Undertone could not do."""


class StudyError(UndertoneError, ValueError):
    """The study is wrong, or cannot be run."""


class DataError(UndertoneError, ValueError):
    """The records cannot be used."""


class LimitError(UndertoneError, ValueError):
    """The owner of the data does not allow the study, or has not confirmed what is unusual about it."""


class PeerError(UndertoneError, ValueError):
    """A key, a state folder or an address cannot be used, or the peer must not go on."""


class MachineError(UndertoneError, OSError):
    """A disk, the network or the operating system failed."""


class ResultError(UndertoneError):
    """The study ended, and its result is not to be relied on."""


class Interrupted(UndertoneError):
    """It was asked to end before it had finished. Nothing is lost."""


class InternalError(UndertoneError, RuntimeError):
    """A mistake in Undertone."""


class UndertoneWarning(UserWarning):
    """Something that is allowed and seldom meant."""


class PrivacyWarning(UndertoneWarning):
    """Something is not private, or less private than it looks."""
