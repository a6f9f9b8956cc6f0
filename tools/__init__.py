"""Programs for people who work on the repository; nothing of the package depends on them."""
