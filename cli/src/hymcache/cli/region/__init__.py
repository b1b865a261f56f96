"""`hymcache region`: format, look into, verify, measure and watch a region, one module per verb."""
