"""Pictures of reports as SVG: they follow the theme of the page and say more when pointed at."""
