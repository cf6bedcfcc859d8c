"""What a test needs and may not find: a laptop skips it with the reason; CI, which must have everything, fails."""
import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip this test, or fail it where CI is set."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must have what this test needs: {reason}", pytrace=False)
    pytest.skip(reason)
