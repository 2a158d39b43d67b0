"""JobID: the id of a job."""

__all__ = ["JobID"]


class JobID(str):
    """A job's id: 32 lowercase hexadecimal digits."""

    __slots__ = ()
