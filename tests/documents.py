"""Documents whose commands are run in order, and whose outputs are those they show.

The noise moves an estimate and its interval, `n [low, high]`, and the clock moves times; these are
compared by their pattern, everything else word by word.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
NUMBER = r"-?[\d,]+(?:\.\d+)?"
VARIES = [
    (rf"{NUMBER}\s+\[{NUMBER}, {NUMBER}\]", "# [#, #]"),
    (rf"{NUMBER},{NUMBER},{NUMBER},(measured|inferred)", r"#,#,#,\1"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d", "<time>"),
    (r'"(estimate|low|high)": -?[\d.]+', r'"\1": #'),
    (r'("rows": \[\s*\[\s*)-?\d+', r"\1#"),
]


def blocks(text, *languages):
    """Each fenced block of the languages, as (language, text), in order."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(language, text) for language, text in found if language in languages]


def commands(text):
    """The commands of a console block, each with the output that is shown below it."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def pattern(output):
    """What must be equal: the words of an output, without what the noise and the clock move."""
    for varying, fixed in VARIES:
        output = re.sub(varying, fixed, output)
    return [line.split() for line in output.splitlines() if line.strip()]


def run(folder, text, length=None):
    """Run the commands of a document in one shell, or the first ones; return (command, output
    shown, real output) of each.  YAML that begins with `# name.yaml` is written to that file when
    its place in the document is reached.
    """
    for name in ("policies", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(".*"))
    (folder / "bin").mkdir()
    command = folder / "bin" / "privacy-proxy"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proxy "$@"\n')
    command.chmod(0o755)
    steps = []
    for number, (language, block) in enumerate(blocks(text, "console", "python", "text", "yaml")):
        if language == "console":
            steps += commands(block)
        elif language == "python":
            (folder / f"{number}.py").write_text(block)
            steps.append((f'"{sys.executable}" {number}.py', ""))
        elif language == "text":
            steps[-1] = (steps[-1][0], block)  # the output of the Python above
        elif named := re.match(r"# (\S+\.yaml)\n", block):
            (folder / f"{number}.txt").write_text(block)
            steps.append((f"cp {number}.txt {named[1]}", ""))
    steps = steps[:length]
    script = "".join(f"{step}\nstatus=$?; printf '\\0'; (exit $status)\n" for step, _ in steps)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PRIVACY_PROXY")}
    environment |= {"PATH": f"{folder}/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    outputs = done.stdout.split("\0")[:-1]
    return [(*step, output) for step, output in zip(steps, outputs, strict=True)]


def as_shown(steps):
    """Check that each command has the output that stands below it."""
    for command, shown, real in steps:
        assert pattern(real) == pattern(shown), f"$ {command}\n{real}"
