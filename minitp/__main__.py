"""`minitp …` and `python -m minitp …`."""


def main() -> None:
    """The command line. BLAS threads are settled first: they are read once, when NumPy is first imported."""
    from minitp.environment import settle_blas_threads
    from minitp.launcher import reported
    settle_blas_threads()
    with reported(first_rank_only=True):
        from minitp.cli import app
        app()


if __name__ == "__main__":
    main()
