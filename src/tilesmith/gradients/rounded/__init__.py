"""Where a result that was rounded when it was stored may stand for what was computed."""
