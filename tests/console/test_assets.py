"""What others have made and the pages use: committed as it is built, with its licences."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import proxy.console

CONSOLE = Path(proxy.console.__file__).parent
ASSETS, VENDOR = CONSOLE / "assets", CONSOLE / "static" / "vendor"


@pytest.mark.slow
@pytest.mark.clients
def test_what_is_committed_is_what_the_sources_build(tmp_path):
    """Byte for byte, from the versions of the lock file."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm here")
    for path in ASSETS.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    out = tmp_path / "out"
    for command in ([npm, "ci", "--no-audit", "--no-fund"], ["node", "build.mjs", str(out)]):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    built = {path.name: path.read_bytes() for path in out.iterdir()}
    assert built == {path.name: path.read_bytes() for path in VENDOR.iterdir()}


def test_each_bundled_package_has_its_licence_beside_it():
    """And none is bundled whose licence asks for more than to be named."""
    told = (VENDOR / "LICENSES").read_text()
    heads = re.findall(r"^(\S+) (\S+) \((.+)\)$", told, re.MULTILINE)
    named = {name for name, *_ in heads}
    wanted = json.loads((ASSETS / "package.json").read_text())["dependencies"].keys()
    assert wanted <= named
    assert {licence for *_, licence in heads} <= {"MIT", "0BSD", "ISC", "BSD-2-Clause"}


def test_no_script_of_a_page_needs_more_than_the_policy_allows():
    """Nothing of ours writes HTML or styles as texts, or loads from elsewhere."""
    ours = [*CONSOLE.glob("static/*.js"), *CONSOLE.glob("assets/*.js")]
    assert len(ours) > 5
    for path in ours:
        text = path.read_text()
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "eval(",
            "https://",
            "http://",
        ):
            assert word not in text, path.name
    for path in CONSOLE.glob("templates/*.html"):
        assert not re.search(r"\son\w+=|\sstyle=|<style|https?://|\|safe", path.read_text()), (
            path.name
        )
