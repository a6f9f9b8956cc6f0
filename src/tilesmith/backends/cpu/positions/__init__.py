"""Where elements lie: of extremes that a reduction finds, and of tiles in scratch memory."""
