"""The files that put the server into a container: they name what exists, and pin what is needed."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from pathlib import Path

import pytest
import typer
import yaml
from packaging.requirements import Requirement

from seq2see.cli import app
from seq2see.storage import folder

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"


def test_the_container_starts_a_command_that_exists() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    (line,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    program, name, *arguments = json.loads(line)
    assert program == "seq2see"
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("--")} <= known
    models = {value for option, value in itertools.pairwise(arguments) if option == "--model"}
    assert models <= set(folder.shipped_models())
    assert "USER nobody" in text
    for copied in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in copied.split())


@pytest.mark.parametrize(("lock", "extra"), [("deploy/requirements.lock", ""), ("tests/requirements.lock", "dev")])
def test_every_dependency_is_pinned_to_a_version_that_fits(lock: str, extra: str) -> None:
    lines = (ROOT / lock).read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    of_train = [] if extra else extras["train"]  # the container looks inside, too
    for text in [*project["dependencies"], *of_train, *extras.get(extra, [])]:
        needed = Requirement(text)
        if needed.name == project["name"]:  # an extra of its own
            continue
        assert pinned[needed.name.replace("_", "-").lower()] in needed.specifier, text


def test_the_server_is_shut_in() -> None:
    (compose,) = yaml.safe_load_all((DEPLOY / "compose.yaml").read_text())
    server = compose["services"]["seq2see"]
    assert server["read_only"]
    assert server["cap_drop"] == ["ALL"]
    assert "ports" not in server  # only the proxy reaches it
    deployment, service = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert deployment["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] == "/healthz"
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["containerPort"]
