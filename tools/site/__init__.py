"""The site: ``python -m tools.site`` writes its pages below build/site, and builds it."""
