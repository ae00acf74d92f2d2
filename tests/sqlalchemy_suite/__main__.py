"""Run SQLAlchemy's suite for dialects on the survey of 1988: python -m tests.sqlalchemy_suite.

Its plugin holds for a whole run of pytest, so it has one of its own.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from proxy.engine import init

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def main():
    """Make the dataset, and run the suite on it; return pytest's status."""
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder, "cps1988.yaml")
        text = (ROOT / "policies" / "cps1988.yaml").read_text()
        policy.write_text(text.replace("../examples/", f"{ROOT}/examples/"))
        init(policy, Path(folder, "state"))
        url = f"privacyproxy:///{policy}?state={folder}/state"
        command = [sys.executable, "-m", "pytest", "-c", "setup.cfg", "--dburi", url, "suite.py"]
        paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
        environment = os.environ | {"PYTHONPATH": paths}
        return subprocess.run([*command, *sys.argv[1:]], cwd=HERE, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
