"""One condition before the checks of a launch: calls that fulfil it need none of them."""
