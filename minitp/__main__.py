"""`minitp …` and `python -m minitp …`."""
import sys


def main() -> None:
    """The command line. BLAS threads are settled first: they are read once, when NumPy is first imported."""
    from minitp.environment import print_anyway, settle_blas_threads
    from minitp.errors import MinitpError, without_number
    from minitp.launcher import reported
    settle_blas_threads()
    print_anyway(sys.stdout, sys.stderr)
    examining = sys.argv[1:2] == ["doctor"]         # it is to tell of a launcher under which no job can be opened
    with reported(first_rank_only=True, join=not examining):
        from minitp.cli import app
        try:
            app()
        except SystemExit as end:                   # Typer turns Ctrl-C into a silent exit: it's told as elsewhere
            stop = getattr(end.__context__, "__cause__", None)
            if isinstance(stop, KeyboardInterrupt):
                raise stop from None
            raise
        except OSError as error:                    # a full disk, a folder that isn't there: no traceback would help
            raise MinitpError(without_number(error)) from error


if __name__ == "__main__":
    main()
