"""The project's rules about its own files, so that one command checks them all."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import proxy
from proxy import lazy
from proxy.engine import init
from proxy.inference import plan
from proxy.server.workers import template

ROOT = Path(__file__).parent.parent
LINT_IMPORTS = (
    "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
)
MODULES = sorted((ROOT / "proxy").rglob("*.py"))


def files():
    """Every text file that a clone has: those of git, or, without git, what lies in the folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        hidden = re.compile(r"(^|/)(\.(?!ci/|gitignore)|__pycache__/|[^/]*\.egg-info/)")
        paths = [p for p in ROOT.rglob("*") if not hidden.search(str(p.relative_to(ROOT)))]
    binary = (".gz", ".parquet", ".png", ".duckdb", ".sqlite", ".key")
    made = ROOT / "tests" / "fixtures"  # states of older versions, as they were left
    anchors = [p for p in paths if p.is_relative_to(made) and p.name == "anchor"]
    return [p for p in paths if p.is_file() and p.suffix not in binary and p not in anchors]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["-m", "ruff", "check", "--no-cache"], id="ruff"),
        pytest.param(["-m", "ruff", "format", "--no-cache", "--check"], id="format"),
        pytest.param(["-m", "mypy"], id="mypy", marks=pytest.mark.slow),
        pytest.param(
            [
                "-c",
                "from importlinter.cli import lint_imports_command as lint; lint(['--no-cache'])",
            ],
            id="imports",
        ),
    ],
)
def test_the_code_keeps_the_rules_of(command):
    """
    Linter, formatter, strict types, and the direction of imports, as pyproject.toml sets them.
    """
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_imports_its_own_package_root(module):
    """
    ``from proxy import x`` would run the package's front door from inside, and hide a cycle.
    """
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.module != "proxy", f"line {node.lineno}"
            assert node.level == 0, f"line {node.lineno}: a relative import"
        if isinstance(node, ast.Import):
            assert "proxy" not in [name.name for name in node.names], f"line {node.lineno}"


def steps():
    """The modules that each step of proxy/README.md names, as paths below proxy/."""
    text = (ROOT / "proxy/README.md").read_text()
    lines = re.findall(r"^(\d+)\. (.*)$", text, re.MULTILINE)
    assert [int(number) for number, _ in lines] == list(range(1, 11))
    return [re.findall(r"`([\w/]+(?:\.py|/))`", words) for _, words in lines]


def test_the_way_of_a_query_has_ten_steps_through_modules_that_exist():
    """
    proxy/README.md numbers its steps from 1 to 10, and each names its modules.
    """
    for modules in steps():
        assert modules
        for name in modules:
            assert (ROOT / "proxy" / name).exists(), name


@pytest.mark.slow
def test_a_query_goes_that_way(tmp_path):
    """
    The first modules of the ten steps are entered in their order, and all that are named at all.
    """
    policy = ROOT / "policies/cps1988.yaml"
    init(policy, tmp_path, accept_second_budget=True)
    for remembered in (plan._law, plan._meets, plan._half_width):  # by other tests
        remembered.cache_clear()
    entered = []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>":
            entered.append(frame.f_code.co_filename)

    with proxy.connect(policy, state=tmp_path) as connection:
        cursor = connection.cursor()
        sys.setprofile(note)
        try:
            cursor.execute("SELECT COUNT(*) FROM cps1988 WHERE smsa LIKE %(smsa)s", {"smsa": "yes"})
        finally:
            sys.setprofile(None)

    calls = iter(entered)
    for modules in steps():
        assert str(ROOT / "proxy" / modules[0]) in calls, f"{modules[0]} is not entered then"
    named = {name for modules in steps() for name in modules if name.endswith(".py")}
    assert [name for name in named if str(ROOT / "proxy" / name) not in entered] == []


def test_contributing_maps_every_part_to_its_tests():
    """
    Whatever its table names is there; no part of proxy/ and no test is left out of it.
    """
    rows = re.findall(r"^\| .* \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    named = set()
    for name in re.findall(r"`([^`]+)`", "\n".join(rows)):
        found = set(ROOT.glob(name))
        assert found, name
        named |= found
    parts = {path for path in (ROOT / "proxy").glob("*.py") if not path.name.startswith("__")}
    parts |= {path.parent for path in (ROOT / "proxy").glob("*/__init__.py")}
    parts |= {*(ROOT / "tests").glob("test_*.py")}
    parts |= {path.parent for path in (ROOT / "tests").glob("*/test_*.py")}
    assert sorted(map(str, parts - named)) == []


def test_no_file_names_a_path_of_the_machine_it_was_written_on():
    """
    A fresh clone knows no home folder, no checkout, and nothing beside itself.
    """
    private = re.compile(
        r"(?<![\w.}/])/(?:home|root|work|tmp|mnt|Users)/\w"
        r"|\.\./share[d]|" + re.escape(str(Path.home())) + r"/\w"
    )
    for path in files():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            assert not private.search(line), f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def test_every_file_is_utf_8_and_ends_with_a_newline():
    """
    ... and holds no trailing blanks, tabs or carriage returns, the licence's included.
    """
    for path in files():
        text = path.read_bytes().decode()
        assert text.endswith("\n") or not text, path
        assert "\r" not in text, path


@pytest.mark.slow
def test_the_remote_door_waits_for_no_inference():
    """
    A client of a server imports neither SciPy nor the noise, nor the engine's own modules.
    """
    code = "import sys, proxy.remote; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    unwanted = {"scipy", "opendp", "proxy.inference.history", "proxy.engine.engine"}
    assert not unwanted & set(done.stdout.split())


LAZY = {"char", "fft", "ma", "polynomial", "random", "rec", "strings", "testing"}  # of NumPy


def test_a_server_forks_when_all_is_imported():
    """
    What statements import where they first need it, its templates import before they fork: memory
    is shared then, and a worker can open no file later.
    """
    later = set()
    for path in MODULES:
        if path.relative_to(ROOT / "proxy").parts[0] not in ("sql", "inference", "engine"):
            continue
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in LAZY:
                later |= {f"numpy.{node.attr}"} if getattr(node.value, "id", "") == "np" else set()
            if isinstance(node, ast.ImportFrom) and node.col_offset:
                later |= {node.module} if node.module.startswith("scipy") else set()
            if isinstance(node, ast.ImportFrom) and node.module == lazy.__name__:
                names = {each.name for each in node.names}
                later |= {n for n in names if isinstance(getattr(lazy, n), lazy.Deferred)}
    assert later == set(template.LATER)
    code = (
        "import sys; from proxy.server.workers import template\n"
        "try: template.main(lambda setup: None, None)\n"
        "except Exception: print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert later <= set(done.stdout.split())


def test_files_functions_and_folders_are_small():
    """
    No file of more than 470 lines, no function of more than 60, no folder of more than 22 modules.
    """
    large = []
    for path in ROOT.glob("proxy/**/*.py"):
        text = path.read_text()
        large += [str(path)] * (len(text.splitlines()) > 470)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                long = node.end_lineno - node.lineno + 1 > 60
                large += [f"{path}: {node.name}"] * long
        modules = [each for each in path.parent.glob("*.py") if each.name != "__init__.py"]
        large += [f"{path.parent}"] * (len(modules) > 22)
    assert sorted(set(large)) == []


@pytest.mark.parametrize("package", ["proxy.cube", "proxy.engine", "proxy.steward"])
def test_a_lazy_name_is_what_its_module_has(package):
    """
    Also after the modules themselves were imported: none of them has the name of what is in it.
    """
    there = importlib.import_module(package)
    modules = {place: importlib.import_module(place) for place in there.MODULES.values()}
    assert sorted(there.__all__) == sorted(there.MODULES)
    for name, place in there.MODULES.items():
        assert getattr(there, name) is getattr(modules[place], name)
    with pytest.raises(AttributeError, match=f"{package}.*nonsense"):
        there.nonsense  # noqa: B018
