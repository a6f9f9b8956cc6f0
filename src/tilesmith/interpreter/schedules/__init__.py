"""Programs of a grid at once, in an order of one's choice: do they race, can they wait for ever?"""
