"""CXLRegion: from an allocation to composed and attached memory, and back."""
