"""The Redfish service of an appliance, shaped as DMTF's public CXL mockup (DSP2043, public-cxl)."""
