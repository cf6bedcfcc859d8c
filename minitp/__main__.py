"""`minitp …` and `python -m minitp …`."""
import re


def main() -> None:
    """The command line. BLAS threads are settled first: they are read once, when NumPy is first imported."""
    from minitp.environment import settle_blas_threads
    from minitp.errors import MinitpError
    from minitp.launcher import reported
    settle_blas_threads()
    with reported(first_rank_only=True):
        from minitp.cli import app
        try:
            app()
        except OSError as error:                    # a full disk, a folder that isn't there: no traceback would help
            raise MinitpError(re.sub(r"^\[Errno \d+\] ", "", str(error))) from error


if __name__ == "__main__":
    main()
