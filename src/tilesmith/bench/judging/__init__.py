"""Results that are judged once, however often they are seen."""
