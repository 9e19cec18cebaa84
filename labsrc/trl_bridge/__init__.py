"""TRL 1.16.0 beside labsrc: its losses called alone, its defaults read, a tiny run of it, settings for it (chapter 6).

TRL is imported only when one of these functions is called, and the model hub stays out of reach. Private methods are
called here, so the version is exact: another one is refused.
"""
