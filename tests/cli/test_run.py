"""``tilesmith run``: a script written for Helion runs as it is, as if Python ran it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm_python import warm_python
from tilesmith.cli.run_script import run_script

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("script_for_helion.py")


@pytest.fixture(autouse=True)
def own_imports(monkeypatch):
    """What a run changes in its process is undone after the test."""
    for name in ("argv", "path", "meta_path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("helion", "neighbour"):
            del sys.modules[name]


def test_an_unchanged_script_runs_with_its_arguments(capsys):
    run_script(SCRIPT, ["one", "--two", "--help"])
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "arguments ['one', '--two', '--help'] __main__ tilesmith"
    assert out.count("implementation") == 2
    assert not err


def test_helions_variables_count_where_ours_are_not_set(tmp_path, monkeypatch, capsys):
    script = tmp_path / "shown.py"
    script.write_text("import helion\ns = helion.Settings()\nprint(s.index_dtype, s.fast_math)")
    monkeypatch.setenv("HELION_INDEX_DTYPE", "int64")
    monkeypatch.setenv("HELION_FAST_MATH", "1")
    monkeypatch.setenv("TILESMITH_FAST_MATH", "0")
    run_script(script, [])
    assert capsys.readouterr().out == "int64 False\n"


def test_variables_that_the_script_sets_itself_count(tmp_path, capsys):
    script = tmp_path / "sets.py"
    script.write_text(
        "import os\nos.environ['HELION_FAST_MATH'] = '1'\nimport helion\n"
        "print(helion.Settings().fast_math)\ndel os.environ['HELION_FAST_MATH']\n"
        "print(helion.Settings().fast_math)"
    )
    run_script(script, [])
    assert capsys.readouterr().out == "True\nFalse\n"


def test_configs_are_printed_as_the_script_would_write_them(tmp_path, capsys):
    script = tmp_path / "shown.py"
    script.write_text(
        "import helion\nconfig = helion.Config(block_sizes=[16])\n"
        "print(repr(config))\nassert eval(repr([config])) == [config]"
    )
    run_script(script, [])
    assert capsys.readouterr().out == "helion.Config(block_sizes=[16])\n"


def test_names_that_stand_elsewhere_here(tmp_path, capsys):
    script = tmp_path / "names.py"
    script.write_text(
        "import helion\nfrom helion.autotuner.external import autotune\n"
        "from helion.experimental import backward\n"
        "print(helion.autotuner.autotune is autotune, helion.experimental.backward is backward)"
    )
    run_script(script, [])
    assert capsys.readouterr().out == "True True\n"


def test_an_exit_code_passes_through():
    with pytest.raises(SystemExit) as exit_:
        run_script(SCRIPT, ["--exit"])
    assert exit_.value.code == 7


@pytest.mark.parametrize(
    ("option", "last"),
    [
        ("--fail", "ValueError: as asked"),
        ("--mistake", "= fix: call it in a function decorated with @kernel"),
        ("--wrong", "Greatest relative difference"),
    ],
)
def test_a_traceback_begins_in_the_script(option, last, capsys):
    with pytest.raises(SystemExit) as exit_:
        run_script(SCRIPT, [option])
    assert exit_.value.code == 1
    first, second, *rest = capsys.readouterr().err.strip().splitlines()
    assert first == "Traceback (most recent call last):"
    assert second.startswith(f'  File "{SCRIPT}", line')
    assert last in rest[-1]


def test_a_script_that_does_not_parse_shows_where(tmp_path, capsys):
    script = tmp_path / "broken.py"
    script.write_text("x = (\n")
    with pytest.raises(SystemExit):
        run_script(script, [])
    assert "broken.py" in capsys.readouterr().err


def test_modules_next_to_the_script_are_found(tmp_path, capsys):
    (tmp_path / "neighbour.py").write_text("import helion\nNAME = helion.__name__\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import neighbour, helion, sys\n"
        "import helion.language as hl\n"
        "assert sys.modules['helion.language'] is sys.modules['tilesmith.language']\n"
        "assert hl.__spec__.name == 'tilesmith.language'\n"
        "try:\n    import helion.no_such_module\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
        "print(neighbour.NAME)\n"
    )
    run_script(script, [])
    assert capsys.readouterr().out.splitlines() == [
        "No module named 'helion.no_such_module': tilesmith has no counterpart",
        "tilesmith",
    ]


def test_the_command_in_a_process_of_its_own():
    start = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n"
    start += "try:\n    import helion\nexcept ModuleNotFoundError:\n    print('no helion')\n"
    start += "from tilesmith.cli.main import main; main()"
    done = subprocess.run(
        [*warm_python(), "-c", start, "run", str(SCRIPT), "--exit"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines()[0] == "no helion"
    assert done.stdout.splitlines()[-1] == "arguments ['--exit'] __main__ tilesmith"
