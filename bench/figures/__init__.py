"""The region's figures: what is promised, measured in paired rounds, with floors that fail the run."""
