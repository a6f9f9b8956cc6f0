"""``python -m tools.site``."""

from tools.site.build import main

main()
