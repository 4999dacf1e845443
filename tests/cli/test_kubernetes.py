"""examples/kubernetes: manifests that fit together, commands that run, and an image whose lines fit the project."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml  # comes with myst-parser, which builds the pages

import txnlog
from tests.cli.command_line import run
from tests.pages import ROOT, blocks, page
from txnlog.cli.commands import DONE, REFUSED

FOLDER = ROOT / "examples" / "kubernetes"
PAGE = "docs/operations/kubernetes.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def objects(*names: str) -> list[dict[str, Any]]:
    """The objects of some files, or of all."""
    files = [FOLDER / name for name in names] or sorted(FOLDER.glob("*.yaml"))
    return [item for file in files for item in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def pods() -> dict[str, dict[str, Any]]:
    """By the name of its owner the specification of each pod."""
    found = {}
    for item in objects():
        spec = item.get("spec", {})
        template = spec["jobTemplate"]["spec"]["template"] if "jobTemplate" in spec else spec.get("template")
        if template is not None:
            found[item["metadata"]["name"]] = template["spec"]
    return found


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    return dict(only)


# --- the manifests ----------------------------------------------------------------------------------------------------


def test_the_objects_have_names_of_their_own_in_one_namespace() -> None:
    found = [(item["apiVersion"], item["kind"], item["metadata"]["name"]) for item in objects()]
    assert len(set(found)) == len(found) == 10
    assert {item["metadata"]["namespace"] for item in objects()} == {"txnlog"}
    assert {kind for _, kind, _ in found} == {"ServiceAccount", "CronJob", "Deployment", "Service"}


def test_every_pod_has_an_account_of_the_page_and_may_do_little_else() -> None:
    accounts = {item["metadata"]["name"] for item in objects("access.yaml")}
    assert {pod["serviceAccountName"] for pod in pods().values()} == accounts
    assert accounts == set(re.findall(r"^\| `(txnlog-\w+)` \|", page(PAGE), re.MULTILINE))
    for pod in pods().values():
        rights = container(pod)["securityContext"]
        assert rights["readOnlyRootFilesystem"]
        assert not rights["allowPrivilegeEscalation"]
        assert pod["securityContext"]["runAsNonRoot"]
        mounted = {item["name"] for item in container(pod)["volumeMounts"]}
        assert mounted == {item["name"] for item in pod["volumes"]}


def test_the_image_is_that_of_this_version_everywhere() -> None:
    image = f"registry.example/txnlog:{PROJECT['version']}"
    assert {container(pod)["image"] for pod in pods().values()} == {image}
    assert page(PAGE).count(image) == 2


def test_only_what_may_pass_is_run_again() -> None:
    for item in objects("jobs.yaml"):
        job = item["spec"]["jobTemplate"]["spec"]
        assert len(item["spec"]["schedule"].split()) == 5
        assert job["template"]["spec"]["restartPolicy"] == "Never", "what podFailurePolicy asks for"
        (command, *_) = container(job["template"]["spec"])["args"][2:]
        if command in {"doctor", "fsck"}:
            assert (job["backoffLimit"], "podFailurePolicy" in job) == (0, False)
        else:
            (rule,) = job["podFailurePolicy"]["rules"]
            assert rule["action"] == "FailJob"
            assert rule["onExitCodes"] == {"containerName": "txnlog", "operator": "In", "values": [REFUSED]}
            assert container(job["template"]["spec"])["name"] == "txnlog"


def test_the_service_leads_to_the_exporter() -> None:
    deployment, service = objects("exporter.yaml")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels == deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    (port,) = container(deployment["spec"]["template"]["spec"])["ports"]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    assert str(port["containerPort"]) in container(deployment["spec"]["template"]["spec"])["args"]
    (scraping,) = (yaml.safe_load(text)["scrape_configs"] for text in blocks(page(PAGE), "yaml"))
    assert scraping[0]["relabel_configs"][0]["regex"] == service["metadata"]["labels"]["app"]


# --- the commands -----------------------------------------------------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    with txnlog.open(tmp_path / "lake", namespace="shop", create=True) as ns:
        ns.create_topic("orders")
        ns.produce("orders", [{"value": b"1"}])
    return tmp_path


def local(arguments: list[str], folder: Path) -> list[str]:
    """The arguments with folders in the place of buckets."""
    return [re.sub(r"^s3://(bucket|other-bucket)/", f"{folder}/", item) for item in arguments]


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_command_runs_and_those_of_a_reader_write_nothing(lake: Path) -> None:
    commands = {
        name: (pod["serviceAccountName"], container(pod)["args"])
        for name, pod in pods().items()
        if container(pod)["args"][0] == "txnlog"
    }
    assert len(commands) == 5
    for name, (account, (_, *arguments)) in commands.items():
        before = content(lake / "lake")
        done = run(*local(arguments, lake))
        assert done.returncode == DONE, f"{name}: {done.stdout}{done.stderr}"
        if account != "txnlog-maintainer":
            assert content(lake / "lake") == before, f"{name} needs more than the right to read"
    assert run(str(lake / "again" / "shop"), "restore", str(lake / "backups" / "shop")).returncode == DONE


def test_the_exporter_runs_as_its_container_starts_it(lake: Path) -> None:
    (pod,) = (pod for pod in pods().values() if container(pod)["args"][0] == "python")
    _, program, *arguments = container(pod)["args"]
    assert f"COPY examples/monitoring/exporter.py {program}\n" in (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    shutil.copy(ROOT / "examples" / "monitoring" / "exporter.py", lake / "exporter.py")
    chosen = ["0" if item == "9464" else "127.0.0.1" if item == "0.0.0.0" else item for item in local(arguments, lake)]
    with subprocess.Popen(
        [sys.executable, str(lake / "exporter.py"), *chosen], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            (address,) = re.findall(r"http://127\.0\.0\.1:\d+/metrics", line)
            with urllib.request.urlopen(address, timeout=30) as answer:
                assert b'txnlog_topic_messages_total{namespace="shop",topic="orders"' in answer.read()
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM


# --- the image --------------------------------------------------------------------------------------------------------


def test_the_lines_of_the_image_fit_the_project() -> None:
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    wheel = f"{PROJECT['name']}-{PROJECT['version']}-py3-none-any.whl"
    assert set(re.findall(r"\S*/(\S+?\.whl)", text)) == {wheel}
    assert f"COPY dist/{wheel} /tmp/\n" in text
    assert "pip wheel --no-deps --wheel-dir dist ." in text
    ((installed, extras),) = re.findall(r'pip install --no-cache-dir "/tmp/([^"\[]+)\[([\w,]+)\]"', text)
    assert installed == wheel
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    for source in re.findall(r"^COPY (\S+) ", text, re.MULTILINE):
        assert source == f"dist/{wheel}" or (ROOT / source).is_file(), source
    (python,) = re.findall(r"Python (3\.\d+)", text)
    assert PROJECT["requires-python"] == ">=3.11"
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    assert text.index("USER ") < text.index("ENTRYPOINT "), "not as root"
