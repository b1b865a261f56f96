"""The admin API: what a hand in the machine room does - cables, power, and breaking things on purpose."""

ROOT = "/admin/v1"
