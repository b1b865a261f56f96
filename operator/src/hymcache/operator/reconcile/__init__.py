"""One pure plan and one effect step per kind. A reconcile may crash anywhere and be run again."""
