"""Where it counts, a skipped test is a failed one."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFTEST = Path(__file__).parent.parent / "conftest.py"

SKIPPING_MODULES = {
    "skipped by a mark": "@pytest.mark.skip(reason='some day')\ndef test_it(): pass",
    "skipped by a condition": "@pytest.mark.skipif(True, reason='some day')\ndef test_it(): pass",
    "skipped while running": "def test_it(): pytest.skip('some day')",
    "skipped in a fixture": "@pytest.fixture\ndef server(): pytest.skip('some day')\n\ndef test_it(server): pass",
    "expected to fail and failing": "@pytest.mark.xfail(reason='some day')\ndef test_it(): assert False",
    "expected to fail and passing": "@pytest.mark.xfail(reason='some day', strict=False)\ndef test_it(): pass",
    "expected to fail while running": "def test_it(): pytest.xfail('some day')",
    "skipped as a module": "pytest.skip('some day', allow_module_level=True)\n\ndef test_it(): pass",
    "skipped for a missing package": "pytest.importorskip('no_such_package', reason='some day')",
}

STRICT_SETTINGS = {"in CI": {"CI": "true"}, "on demand": {"TXNLOG_NO_SKIP": "1"}}

strict_settings = pytest.mark.parametrize("settings", STRICT_SETTINGS.values(), ids=STRICT_SETTINGS.keys())


def run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, modules: dict[str, str], settings: dict[str, str]
) -> pytest.RunResult:
    """Run test modules, named by what they show, beside a copy of this project's conftest."""
    for name in ("CI", "TXNLOG_NO_SKIP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    pytester.makeconftest(CONFTEST.read_text())
    for name, source in modules.items():
        pytester.makepyfile(**{f"test_{name.replace(' ', '_')}": f"import pytest\n\n{source}\n"})
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "--continue-on-collection-errors")


@strict_settings
def test_a_skipped_test_fails_the_run(pytester, monkeypatch, settings):
    result = run(pytester, monkeypatch, SKIPPING_MODULES, settings)
    outcomes = result.parseoutcomes()
    assert result.ret != pytest.ExitCode.OK
    assert set(outcomes) == {"failed", "errors"}, outcomes
    assert outcomes["failed"] + outcomes["errors"] == len(SKIPPING_MODULES)
    # One line each in the summary at the end, and the reason that the test gave.
    told = [line for line in result.outlines if "Nothing may be skipped in this run" in line and "some day" in line]
    assert len(told) >= len(SKIPPING_MODULES)


def test_a_developer_may_skip(pytester, monkeypatch):
    result = run(pytester, monkeypatch, SKIPPING_MODULES, {})
    result.assert_outcomes(skipped=6, xfailed=2, xpassed=1)


@strict_settings
def test_passing_and_failing_stay_what_they_are(pytester, monkeypatch, settings):
    modules = {"both": "def test_good(): pass\n\ndef test_bad(): assert False, 'really'"}
    result = run(pytester, monkeypatch, modules, settings)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.no_fnmatch_line("*Nothing may be skipped*")
