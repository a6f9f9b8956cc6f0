"""Builds the wheel with the gallery and the benchmark suite in it; everything else is pyproject.

They lie in a folder of the package that only the ``tilesmith`` command puts on the import path:
names such as ``examples`` are not ours alone.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = ("examples", "benchmarks")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")


class BuildWithGallery(build_py):
    """Copies the folders; an editable install finds them in the checkout."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        if self.editable_mode:
            return
        root, made = Path(__file__).parent, Path(self.build_lib) / "tilesmith" / "shipped"
        for name in SHIPPED:
            shutil.copytree(root / name, made / name, dirs_exist_ok=True, ignore=LEFT_OUT)


setup(cmdclass={"build_py": BuildWithGallery})
