"""What others install: a wheel and an sdist that are whole and work in a clean environment; known holes in what we need.

`make verify` runs it with the Python of .venv/tools, which has `build`, `hatchling` and `pip-audit`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCKS = (ROOT / "deploy/requirements.lock", ROOT / "tests/requirements.lock")
PACKAGES = ROOT / ".venv" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def main() -> None:
    """Build, compare, install, try, audit."""
    with tempfile.TemporaryDirectory() as place:
        wheel = built(Path(place))
        tried(wheel, Path(place))
    holes = [audited(lock) for lock in LOCKS]
    sys.exit(any(holes))


def run(*command: object, cwd: Path = ROOT) -> str:
    """Run a command that must succeed, and return what it says."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def built(place: Path) -> Path:
    """Build an sdist, and of it a wheel; both hold every file of the package that git knows."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", place, ROOT)
    (wheel,), (sdist,) = place.glob("*.whl"), place.glob("*.tar.gz")
    known = set(run("git", "ls-files", "src/seq2see").split("\n")) - {""}
    with zipfile.ZipFile(wheel) as file:
        held = {f"src/{name}" for name in file.namelist() if name.startswith("seq2see/")}
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    for name, missing in (("wheel", known ^ held), ("sdist", known - packed)):
        if missing:
            sys.exit(f"The {name} and git differ by {len(missing)} files: {sorted(missing)[:10]}.")
    print(f"{wheel.name} has all {len(held)} files of the package, {wheel.stat().st_size / 1e6:.0f} MB.")
    return wheel


def tried(wheel: Path, place: Path) -> None:
    """Install the wheel in a clean environment and use it. The packages that it needs are borrowed from .venv."""
    home, away = place / "clean", place / "away"
    venv.create(home, with_pip=True)
    away.mkdir()
    run(home / "bin/python", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(f"{PACKAGES}\n")  # the paths in it, but not its own .pth files
    where = run(home / "bin/python", "-c", "import seq2see; print(seq2see.__file__)", cwd=away)
    assert str(packages) in where, f"the package is taken from {where}"
    seq2see = home / "bin/seq2see"
    assert run(seq2see, "predict", "1845-01-05", cwd=away) == "January 5, 1845\n"
    assert run(seq2see, "predict", "--model", "en-fr", "I lost my keys.", cwd=away).strip()
    for name in sorted(path.name for path in (packages / "seq2see/models").iterdir()):
        said = run(seq2see, "inspect", packages / "seq2see/models" / name, cwd=away)
        assert "files are those that SHA256SUMS lists" in said, said
    run(seq2see, "see", "1845-01-05", "--html", "page.html", cwd=away)
    assert (away / "page.html").stat().st_size > 100_000
    print("Installed in a clean environment it answers, shows its page, and its models have their checksums.")


def audited(lock: Path) -> bool:
    """Ask a database for known holes in the pinned versions; return whether there are some."""
    form = ("--format", "json", "--progress-spinner", "off")
    command = [sys.executable, "-m", "pip_audit", "-r", lock, "--no-deps", "--disable-pip", *form]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        packages = []
    asked = [one for one in packages if "skip_reason" not in one]
    name = lock.relative_to(ROOT)
    if not asked:
        print(f"NOT AUDITED: no database of known holes could be reached, so {name} was not checked.")
    else:
        print(f"{name}: {len(asked)} of {len(packages)} pinned packages were looked up in a database of known holes.")
    holes = [(one["name"], one["version"], hole["id"]) for one in asked for hole in one["vulns"]]
    for package, version, hole in holes:
        print(f"{package} {version} has the known hole {hole}: raise its version in {name}.")
    return bool(holes)


if __name__ == "__main__":
    main()
