"""The cut is below the model: ranks talk without knowing what they compute."""
import subprocess
import sys


def test_collectives_know_nothing_of_models():
    code = ("import sys, minitp.comm, minitp.cut\n"
            "print(*(name for name in sys.modules if name in ('minitp.config', 'minitp.placement', 'minitp.model')))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
