"""What the plugin promised, on disk: one file per claim, so that one damaged file is one claim's trouble."""
